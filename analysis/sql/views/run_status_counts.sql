-- Grain: one row per run_id, measured_status, for every status there is: what did not occur is 0,
-- and null where nobody recorded requests. The file of another tool tells some statuses only, and
-- none of the requests that it does not describe: there, too, what was not seen is null.
-- measured_offered is how many requests the run was offered, null where nobody knows; in a driven
-- run the statuses add up to it.
CREATE VIEW run_status_counts AS
WITH statuses (place, status) AS (
    VALUES (0, 'ok'), (1, 'aborted'), (2, 'error'), (3, 'censored'), (4, 'unsent'), (5, 'rejected')
),
told (format, statuses) AS (
    VALUES
        ('vllm-bench', ['ok', 'error']),
        ('guidellm', ['ok', 'error', 'censored', 'unsent']),
        ('aiperf', ['ok', 'error', 'aborted']),
        ('inference-perf', ['ok', 'error']),
        ('otel', ['ok'])
),
counts AS (
    SELECT run_id, status, count(*) AS requests FROM measured_requests GROUP BY run_id, status
),
recorded AS (
    SELECT run_id FROM counts
    UNION
    SELECT run_id FROM measured_runs WHERE offered_requests IS NOT NULL
),
runs AS (
    SELECT
        r.run_id,
        r.offered_requests,
        CASE
            WHEN c.run_id IS NULL THEN []
            WHEN r.imported_format IS NULL THEN (SELECT list(status) FROM statuses)
            -- Requests of the warm-up are left out on purpose, all others for want of facts.
            WHEN coalesce(json_keys(r.imported_left_out), []) NOT IN ([], ['warmup']) THEN []
            ELSE coalesce(t.statuses, [])
        END AS told
    FROM measured_runs AS r
    LEFT JOIN recorded AS c ON r.run_id = c.run_id
    LEFT JOIN told AS t ON r.imported_format = t.format
)
SELECT
    r.run_id,
    s.status AS measured_status,
    CASE
        WHEN list_contains(r.told, s.status) THEN coalesce(c.requests, 0)
        ELSE c.requests
    END AS measured_requests,
    r.offered_requests AS measured_offered
FROM runs AS r
CROSS JOIN statuses AS s
LEFT JOIN counts AS c ON r.run_id = c.run_id AND s.status = c.status
ORDER BY r.run_id, s.place;
