-- Grain: one row per run_id that has eligible requests of the slice.
-- One latency of every eligible request, cut off at follow_up_us (see capped_values), so that
-- quantiles need no estimator.
-- lost counts those that failed, or ended before they had the value; unknown those that should have
-- the value and have none: missing is no zero.
-- sum_us is exact; quantiles interpolate linearly (quantile_cont).
-- Binds: units and part (see eligible_requests), field.
SELECT
    run_id,
    count(*) AS requests,
    count(*) - count(value_us) AS unknown,
    count(*) FILTER (lost) AS lost,
    sum(value_us) AS sum_us,
    quantile_cont(value_us, [0.5, 0.9, 0.95, 0.99]) AS quantiles_us
FROM capped_values($units, $part, $field)
GROUP BY run_id
ORDER BY run_id;
