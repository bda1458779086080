-- Grain: one row per run_id, measured_tenant.
-- Is this one tenant, or is everybody preempted on the real engine?
-- A tenant whose share of the preemptions is far above its share of the requests and tokens pays
-- for the others. Null is the requests without a tenant. Lost tokens are what the recorder saw
-- victims lose, null where nobody recorded events.
WITH recorded AS (
    SELECT DISTINCT run_id FROM measured_events
),
lost AS (
    SELECT
        q.run_id,
        q.tenant,
        CAST(sum(v.measured_lost_tokens) AS BIGINT) AS lost_tokens,
        CASE
            WHEN count(v.measured_wait_us) = count(*)
                THEN CAST(sum(v.measured_wait_us) AS BIGINT)
        END AS wait_us
    FROM measured_victims AS v
    JOIN measured_requests AS q
        ON q.run_id = v.run_id
        AND q.engine = v.measured_engine
        AND q.request_id = v.request_id
    GROUP BY q.run_id, q.tenant
)
SELECT
    g.run_id,
    g.measured_tenant,
    g.measured_requests,
    g.measured_ok,
    g.measured_preempted_requests,
    g.measured_preemptions,
    CASE WHEN r.run_id IS NOT NULL THEN coalesce(l.lost_tokens, 0) END AS measured_lost_tokens,
    CASE
        WHEN l.run_id IS NOT NULL THEN l.wait_us
        WHEN r.run_id IS NOT NULL THEN 0
    END AS measured_wait_us,
    g.measured_requests / sum(g.measured_requests) OVER run AS measured_requests_frac,
    g.measured_prompt_tokens / nullif(sum(g.measured_prompt_tokens) OVER run, 0)
        AS measured_prompt_tokens_frac,
    -- The share of a whole that is unknown in part is unknown.
    CASE
        WHEN count(g.measured_preemptions) OVER run = count(*) OVER run
            THEN g.measured_preemptions / nullif(sum(g.measured_preemptions) OVER run, 0)
    END AS measured_preemptions_frac
FROM measured_groups AS g
LEFT JOIN recorded AS r ON r.run_id = g.run_id
LEFT JOIN lost AS l
    ON l.run_id = g.run_id AND l.tenant IS NOT DISTINCT FROM g.measured_tenant
WHERE g.measured_dimension = 'tenant'
WINDOW run AS (PARTITION BY g.run_id)
ORDER BY g.run_id, measured_preemptions DESC NULLS LAST, g.measured_tenant NULLS LAST;
