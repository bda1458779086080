-- Grain: one row per run_id, measured_status.
-- What became of the offered requests of each run? Statuses that did not occur are 0, and null
-- where the run's source would not have said so.
SELECT run_id, measured_status, measured_requests, measured_offered
FROM run_status_counts;
