-- Grain: one row per run_id that has eligible requests of the slice.
-- One latency of every eligible request, cut off at follow_up_us: what was observed, at most that
-- long; a request that failed, or ended unfinished before it had the value, took that long. So
-- nobody is left out for being slow, and quantiles need no estimator.
-- lost counts those that failed, or ended before they had the value; unknown those that should have
-- the value and have none: missing is no zero.
-- sum_us is exact; quantiles interpolate linearly (quantile_cont).
-- Binds: units and part (see eligible_requests), field.
WITH
observed AS (
    SELECT
        run_id,
        follow_up_us,
        status,
        $field = 'tpot_us' AND without_tpot AS without,
        -- Before a request ended, these four are not what they will be.
        $field IN ('requeue_time_us', 'decode_time_us', 'tpot_us', 'e2e_us') AS at_end,
        CASE $field
            WHEN 'queue_time_us' THEN queue_time_us
            WHEN 'requeue_time_us' THEN requeue_time_us
            WHEN 'prefill_time_us' THEN prefill_time_us
            WHEN 'decode_time_us' THEN decode_time_us
            WHEN 'ttft_us' THEN ttft_us
            WHEN 'tpot_us' THEN tpot_us
            WHEN 'e2e_us' THEN e2e_us
        END AS observed_us
    FROM eligible_requests($units, $part)
),

judged AS (
    SELECT
        *,
        status NOT IN ('ok', 'censored')
        OR (status = 'censored' AND (at_end OR observed_us IS NULL)) AS lost
    FROM observed
),

capped AS (
    SELECT
        run_id,
        lost,
        CASE WHEN lost OR observed_us > follow_up_us THEN follow_up_us ELSE observed_us END
            AS value_us  -- what is null and not lost stays null
    FROM judged
    WHERE NOT without
)

SELECT
    run_id,
    count(*) AS requests,
    count(*) - count(value_us) AS unknown,
    count(*) FILTER (lost) AS lost,
    sum(value_us) AS sum_us,
    quantile_cont(value_us, [0.5, 0.9, 0.95, 0.99]) AS quantiles_us
FROM capped
GROUP BY run_id
ORDER BY run_id;
