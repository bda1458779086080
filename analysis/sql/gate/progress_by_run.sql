-- Grain: one row per run_id that has measured requests.
-- What the erased-progress check had to look at: requests that reached the engine, and those that
-- stopped by themselves, so that their length was not forced. tokens is null when any request that
-- reached the engine has an unknown count.
-- Binds: run_ids.
SELECT
    r.run_id,
    count(*) FILTER (r.status NOT IN ('unsent', 'rejected')) AS reached,
    count(*) FILTER (r.num_preemptions > 0) AS preempted,
    count(*) FILTER (r.finish_reason = 'stop') AS stopped,
    CASE
        WHEN count(*) FILTER (
            r.generated_tokens IS NULL AND r.status NOT IN ('unsent', 'rejected')
        ) = 0
            THEN coalesce(sum(r.generated_tokens), 0)::BIGINT
    END AS tokens
FROM measured_requests AS r
WHERE list_contains($run_ids, r.run_id)
GROUP BY r.run_id
ORDER BY r.run_id;
