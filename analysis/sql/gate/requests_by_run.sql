-- Grain: one row per run_id that has measured requests.
-- What became of the requests, and how many could be observed long enough: arrived after the
-- warm-up and at least follow_up_us before observation ended (null where that end is unknown).
-- Binds: run_ids, warmup_us, follow_up_us.
SELECT
    r.run_id,
    count(*) AS requests,
    count(*) FILTER (r.status = 'ok') AS ok,
    count(*) FILTER (r.status = 'error') AS error,
    count(*) FILTER (r.status = 'aborted') AS aborted,
    count(*) FILTER (r.status = 'censored') AS censored,
    count(*) FILTER (r.status = 'unsent') AS unsent,
    count(*) FILTER (r.status = 'rejected') AS rejected,
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
ORDER BY r.run_id;
