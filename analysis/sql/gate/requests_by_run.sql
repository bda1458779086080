-- Grain: one row per run_id that has measured requests.
-- What became of the requests, and how many could be observed long enough: arrived after the
-- warm-up and at least follow_up_us before observation ended (null where that end is unknown).
-- A status is null where none was seen and the run's source would not have said so.
-- Binds: run_ids, warmup_us, follow_up_us.
SELECT
    r.run_id,
    count(*) AS requests,
    any_value(s.by_status['ok']) AS ok,
    any_value(s.by_status['error']) AS error,
    any_value(s.by_status['aborted']) AS aborted,
    any_value(s.by_status['censored']) AS censored,
    any_value(s.by_status['unsent']) AS unsent,
    any_value(s.by_status['rejected']) AS rejected,
    CASE
        WHEN any_value(m.drain_end_us) IS NOT NULL
            THEN count(*) FILTER (
                r.arrival_us >= $warmup_us AND r.arrival_us <= m.drain_end_us - $follow_up_us
            )
    END AS eligible
FROM measured_requests AS r
INNER JOIN measured_runs AS m ON r.run_id = m.run_id
INNER JOIN (
    SELECT run_id, map(list(measured_status), list(measured_requests)) AS by_status
    FROM run_status_counts
    WHERE list_contains($run_ids, run_id)
    GROUP BY run_id
) AS s ON r.run_id = s.run_id
WHERE list_contains($run_ids, r.run_id)
GROUP BY r.run_id
ORDER BY r.run_id;
