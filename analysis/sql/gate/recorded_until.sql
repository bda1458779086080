-- Grain: one row per run_id that has records of requests: how far they reach, in microseconds since
-- its start. What a collector has not packed yet is not in it: the end of a run's last scrape says
-- nothing of requests.
-- Binds: run_ids.
WITH records AS (
    SELECT run_id, max(time_us) AS until_us
    FROM measured_events
    WHERE list_contains($run_ids, run_id)
    GROUP BY run_id
    UNION ALL
    SELECT run_id, max(arrival_us + coalesce(e2e_us, 0)) AS until_us
    FROM measured_requests
    WHERE list_contains($run_ids, run_id)
    GROUP BY run_id
)

SELECT
    r.run_id,
    least(max(r.until_us), any_value(m.drain_end_us)) AS recorded_until_us
FROM records AS r
INNER JOIN measured_runs AS m ON r.run_id = m.run_id
GROUP BY r.run_id
ORDER BY r.run_id;
