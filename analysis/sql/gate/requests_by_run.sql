-- Grain: one row per run_id that has measured requests.
-- What became of the requests.
-- A status is null where none was seen and the run's source would not have said so.
-- Binds: run_ids.
WITH
counted AS (
    SELECT
        run_id,
        count(*) AS requests
    FROM measured_requests
    WHERE list_contains($run_ids, run_id)
    GROUP BY run_id
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
    s.by_status['rejected'] AS rejected
FROM counted AS c
INNER JOIN statuses AS s ON c.run_id = s.run_id
ORDER BY c.run_id;
