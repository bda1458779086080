-- Grain: one row per run_id, measured_status that occurred.
-- What did failed requests cost in tokens on the real engine?
-- measured_generated_tokens of requests that did not end as ok were generated for nobody. They are
-- known of measured_generated_known requests only. Lost tokens are what preemption made the engine
-- compute again, null where nobody recorded events.
WITH recorded AS (
    SELECT DISTINCT run_id FROM measured_events
),
statuses AS (
    SELECT
        q.run_id,
        q.status,
        count(*) AS requests,
        CAST(sum(q.prompt_tokens) AS BIGINT) AS prompt_tokens,
        count(q.generated_tokens) AS generated_known,
        CAST(sum(q.generated_tokens) AS BIGINT) AS generated_tokens,
        coalesce(CAST(sum(v.measured_lost_tokens) AS BIGINT), 0) AS lost_tokens
    FROM measured_requests AS q
    LEFT JOIN measured_victims AS v
        ON v.run_id = q.run_id
        AND v.measured_engine = q.engine
        AND v.request_id = q.request_id
    GROUP BY q.run_id, q.status
)
SELECT
    s.run_id,
    s.status AS measured_status,
    s.requests AS measured_requests,
    s.prompt_tokens AS measured_prompt_tokens,
    s.generated_known AS measured_generated_known,
    s.generated_tokens AS measured_generated_tokens,
    s.generated_tokens / nullif(sum(s.generated_tokens) OVER run, 0) AS measured_generated_frac,
    CASE WHEN r.run_id IS NOT NULL THEN s.lost_tokens END AS measured_lost_tokens
FROM statuses AS s
LEFT JOIN recorded AS r ON r.run_id = s.run_id
WINDOW run AS (PARTITION BY s.run_id)
ORDER BY s.run_id, s.status;
