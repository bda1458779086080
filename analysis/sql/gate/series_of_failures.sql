-- Grain: one row per run_id that has measured requests.
-- 1 for each offered request that failed (error, aborted, rejected, unsent), else 0, in order of
-- arrival. Binds: run_ids.
SELECT
    run_id,
    count(*) AS requests,
    list((status NOT IN ('ok', 'censored'))::BIGINT ORDER BY arrival_us, request_id) AS known
FROM measured_requests
WHERE list_contains($run_ids, run_id)
GROUP BY run_id
ORDER BY run_id;
