-- Grain: one row per run_id, measured_from, measured_latency.
-- How do the latencies of the real engine move with the number of generated tokens?
-- A group is measured_from to measured_to generated tokens: a request that failed stands with
-- those as far as it came. Quantiles rest on measured_values of the measured_requests, which are
-- all of the group that were offered, whatever became of them.
SELECT
    run_id,
    measured_from,
    measured_to,
    measured_latency,
    measured_requests,
    measured_ok,
    measured_values,
    measured_p50_us,
    measured_p90_us,
    measured_p95_us,
    measured_p99_us
FROM measured_distributions
WHERE measured_dimension = 'output_tokens'
ORDER BY run_id, measured_from NULLS LAST, measured_place;
