-- Grain: one row per (run_id, outcome, request_id), at most most_ids of a run's outcome; total
-- counts them all. outcome is failed (error, aborted, rejected, unsent) or censored.
-- Binds: run_ids, most_ids.
WITH unanswered AS (
    SELECT
        run_id,
        request_id,
        CASE WHEN status = 'censored' THEN 'censored' ELSE 'failed' END AS outcome
    FROM measured_requests
    WHERE list_contains($run_ids, run_id) AND status != 'ok'
)

SELECT
    run_id,
    outcome,
    request_id,
    count(*) OVER (PARTITION BY run_id, outcome) AS total
FROM unanswered
QUALIFY row_number() OVER (PARTITION BY run_id, outcome ORDER BY request_id) <= $most_ids
ORDER BY run_id, outcome, request_id;
