-- Grain: one row: requests and events of runs together. Binds: run_ids.
SELECT
    (SELECT count(*) FROM measured_requests WHERE list_contains($run_ids, run_id))
    + (SELECT count(*) FROM measured_events WHERE list_contains($run_ids, run_id)) AS held;
