-- Grain: one row per run_id that has measured requests.
-- What became of the requests, and how many could be observed long enough: arrived after the
-- warm-up and at least follow_up_us before observation ended (null where that end is unknown).
-- A status is null where none was seen and the run's source would not have said so.
-- Binds: run_ids, warmup_us, follow_up_us.
WITH
counted AS (
    SELECT
        r.run_id,
        count(*) AS requests,
        CASE
            WHEN any_value(m.drain_end_us) IS NOT NULL
                THEN count(*) FILTER (
                    r.arrival_us >= $warmup_us AND r.arrival_us <= m.drain_end_us - $follow_up_us
                )
        END AS eligible
    FROM measured_requests AS r
    INNER JOIN measured_runs AS m ON r.run_id = m.run_id
    WHERE list_contains($run_ids, r.run_id)
    GROUP BY r.run_id
),

statuses AS (
    SELECT run_id, map(list(measured_status), list(measured_requests)) AS by_status
    FROM run_status_counts
    WHERE list_contains($run_ids, run_id)
    GROUP BY run_id
)

SELECT
    c.run_id,
    c.requests,
    s.by_status['ok'] AS ok,
    s.by_status['error'] AS error,
    s.by_status['aborted'] AS aborted,
    s.by_status['censored'] AS censored,
    s.by_status['unsent'] AS unsent,
    s.by_status['rejected'] AS rejected,
    c.eligible
FROM counted AS c
INNER JOIN statuses AS s ON c.run_id = s.run_id
ORDER BY c.run_id;
