-- Grain: one row per run_id that has eligible requests of the slice.
-- Good requests are ok and meet every objective; what failed, was shed or never answered is bad.
-- A time per output token that a single token cannot have is no objective of it. unknown counts ok
-- requests of which a value is missing and none is too long: nobody knows whether they are good.
-- send_window_us: from a unit's beginning to its last eligible send; null where its end is unknown
-- of a driven run, the whole unit of an observed one.
-- Binds: units and part (see eligible_requests), and a limit in microseconds of each latency
-- field, null where it is none of the objectives.
WITH
judged AS (
    SELECT
        run_id,
        status,
        -- False where an objective is missed, else null where a value is missing.
        ($queue_time_us::BIGINT IS NULL OR queue_time_us <= $queue_time_us)
        AND ($requeue_time_us::BIGINT IS NULL OR requeue_time_us <= $requeue_time_us)
        AND ($prefill_time_us::BIGINT IS NULL OR prefill_time_us <= $prefill_time_us)
        AND ($decode_time_us::BIGINT IS NULL OR decode_time_us <= $decode_time_us)
        AND ($ttft_us::BIGINT IS NULL OR ttft_us <= $ttft_us)
        AND (without_tpot OR $tpot_us::BIGINT IS NULL OR tpot_us <= $tpot_us)
        AND ($e2e_us::BIGINT IS NULL OR e2e_us <= $e2e_us) AS met
    FROM eligible_requests($units, $part)
),

counted AS (
    SELECT
        run_id,
        count(*) AS requests,
        count(*) FILTER (status = 'ok' AND met) AS good,
        count(*) FILTER (status = 'ok' AND met IS NULL) AS unknown
    FROM judged
    GROUP BY run_id
),

windows AS (
    SELECT
        u.unit,
        CASE
            WHEN count(*) = count(m.send_end_us) OR bool_and(m.kind = 'observed')
                THEN max(least(coalesce(m.send_end_us, u.until_us), u.until_us) - u.from_us)
        END AS send_window_us
    FROM (SELECT unnest($units, recursive := true)) AS u
    INNER JOIN measured_runs AS m ON u.run_id = m.run_id
    GROUP BY u.unit
)

SELECT
    c.run_id,
    c.requests,
    c.good,
    c.unknown,
    w.send_window_us
FROM counted AS c
INNER JOIN windows AS w ON c.run_id = w.unit
ORDER BY c.run_id;
