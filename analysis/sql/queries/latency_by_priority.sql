-- Grain: one row per run_id, measured_priority, measured_latency.
-- How do the latencies of the real engine move with the priority?
-- A lower priority is more important. Quantiles rest on measured_values of the measured_requests,
-- which are all of the group that were offered, whatever became of them.
SELECT
    run_id,
    measured_from AS measured_priority,
    measured_latency,
    measured_requests,
    measured_ok,
    measured_values,
    measured_p50_us,
    measured_p90_us,
    measured_p95_us,
    measured_p99_us
FROM measured_distributions
WHERE measured_dimension = 'priority'
ORDER BY run_id, measured_priority NULLS LAST, measured_place;
