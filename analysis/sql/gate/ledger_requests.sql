-- Grain: one row per run_id that has every request of a ledger, with the run's own number.
-- A ledger models a run's requests if each of them is there with the same prompt; it may model only
-- some of them.
-- Binds: run_ids, request_ids and prompt_tokens (the ledger's, in one order).
WITH
ledger AS (
    SELECT
        unnest($request_ids::VARCHAR[]) AS request_id,
        unnest($prompt_tokens::BIGINT[]) AS prompt_tokens
),

found AS (
    SELECT r.run_id, count(DISTINCT l.request_id) AS modelled
    FROM ledger AS l
    INNER JOIN measured_requests AS r
        ON l.request_id = r.request_id AND l.prompt_tokens = r.prompt_tokens
    WHERE list_contains($run_ids, r.run_id)
    GROUP BY r.run_id
)

SELECT
    f.run_id,
    count(r.request_id) AS requests
FROM found AS f
INNER JOIN measured_requests AS r ON f.run_id = r.run_id
WHERE f.modelled = len($request_ids)
GROUP BY f.run_id
ORDER BY f.run_id;
