-- Grain: one row per run_id, measured_num_preemptions, measured_latency.
-- How did latency move with preemption count on the real engine?
-- Null is the requests whose preemptions nobody counted. Quantiles rest on measured_values of the
-- measured_requests, which are all of the group that were offered, whatever became of them.
SELECT
    run_id,
    measured_from AS measured_num_preemptions,
    measured_latency,
    measured_requests,
    measured_ok,
    measured_values,
    measured_p50_us,
    measured_p90_us,
    measured_p95_us,
    measured_p99_us
FROM measured_distributions
WHERE measured_dimension = 'preemptions'
ORDER BY run_id, measured_num_preemptions NULLS LAST, measured_place;
