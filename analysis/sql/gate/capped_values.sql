-- Grain: one row per eligible request of the slice that can have the latency.
-- Cut off at follow_up_us: what was observed, at most that long; a request that failed, or ended
-- unfinished before it had the value (lost), took that long. So nobody is left out for being slow.
-- A macro for the other queries, because they all have to mean the same values. value_us is null
-- where a request should have the value and has none: missing is no zero.
CREATE OR REPLACE TEMP MACRO capped_values(units, part, latency) AS TABLE
WITH
observed AS (
    SELECT
        run_id,
        request_id,
        arrival_us,
        status,
        follow_up_us,
        latency = 'tpot_us' AND without_tpot AS without,
        -- Before a request ended, these four are not what they will be.
        latency IN ('requeue_time_us', 'decode_time_us', 'tpot_us', 'e2e_us') AS at_end,
        CASE latency
            WHEN 'queue_time_us' THEN queue_time_us
            WHEN 'requeue_time_us' THEN requeue_time_us
            WHEN 'prefill_time_us' THEN prefill_time_us
            WHEN 'decode_time_us' THEN decode_time_us
            WHEN 'ttft_us' THEN ttft_us
            WHEN 'tpot_us' THEN tpot_us
            WHEN 'e2e_us' THEN e2e_us
        END AS observed_us
    FROM eligible_requests(units, part)
),

judged AS (
    SELECT
        *,
        status NOT IN ('ok', 'censored')
        OR (status = 'censored' AND (at_end OR observed_us IS NULL)) AS lost
    FROM observed
)

SELECT
    run_id,
    request_id,
    arrival_us,
    lost,
    CASE WHEN lost OR observed_us > follow_up_us THEN follow_up_us ELSE observed_us END
        AS value_us  -- what is null and not lost stays null
FROM judged
WHERE NOT without;
