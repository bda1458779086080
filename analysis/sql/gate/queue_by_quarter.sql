-- Grain: one row per (run_id, quarter) of the eligible arrivals, quarters 1 to 4 by number.
-- How long requests waited for their first schedule, cut off at follow_up_us as everywhere: a
-- queue that grows from quarter to quarter is an engine that cannot keep up.
-- Binds: units and part (see eligible_requests).
WITH capped AS (
    SELECT
        run_id,
        ntile(4) OVER (PARTITION BY run_id ORDER BY arrival_us, request_id) AS quarter,
        CASE
            WHEN
                status NOT IN ('ok', 'censored')
                OR (status = 'censored' AND queue_time_us IS NULL)
                OR queue_time_us > follow_up_us
                THEN follow_up_us
            ELSE queue_time_us  -- null stays null
        END AS value_us
    FROM eligible_requests($units, $part)
)

SELECT
    run_id,
    quarter,
    count(*) AS requests,
    count(*) - count(value_us) AS unknown,
    sum(value_us) AS sum_us
FROM capped
GROUP BY run_id, quarter
ORDER BY run_id, quarter;
