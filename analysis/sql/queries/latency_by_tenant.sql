-- Grain: one row per run_id, measured_tenant, measured_latency.
-- Does one tenant wait longer than the others on the real engine?
-- Null is the requests without a tenant. Quantiles rest on measured_values of the
-- measured_requests, which are all of the group that were offered, whatever became of them.
SELECT
    run_id,
    measured_tenant,
    measured_latency,
    measured_requests,
    measured_ok,
    measured_values,
    measured_p50_us,
    measured_p90_us,
    measured_p95_us,
    measured_p99_us
FROM measured_distributions
WHERE measured_dimension = 'tenant'
ORDER BY run_id, measured_tenant NULLS LAST, measured_place;
