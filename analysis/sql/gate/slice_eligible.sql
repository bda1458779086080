-- Grain: one row per run_id with a known end of observation.
-- Eligible requests of one slice; a bound that is null is not set, a column that is null is in no
-- slice that asks for it.
-- Binds: run_ids, warmup_us, follow_up_us, and min and max of each integer column, tenants.
SELECT
    m.run_id,
    count(r.request_id) AS eligible
FROM measured_runs AS m
LEFT JOIN measured_requests AS r
    ON
        m.run_id = r.run_id
        AND r.arrival_us >= $warmup_us
        AND r.arrival_us <= m.drain_end_us - $follow_up_us
        AND ($priority_min IS NULL OR r.priority >= $priority_min)
        AND ($priority_max IS NULL OR r.priority <= $priority_max)
        AND ($prompt_tokens_min IS NULL OR r.prompt_tokens >= $prompt_tokens_min)
        AND ($prompt_tokens_max IS NULL OR r.prompt_tokens <= $prompt_tokens_max)
        AND ($max_tokens_min IS NULL OR r.max_tokens >= $max_tokens_min)
        AND ($max_tokens_max IS NULL OR r.max_tokens <= $max_tokens_max)
        AND ($arrival_us_min IS NULL OR r.arrival_us >= $arrival_us_min)
        AND ($arrival_us_max IS NULL OR r.arrival_us <= $arrival_us_max)
        AND ($tenants IS NULL OR list_contains($tenants, r.tenant))
WHERE list_contains($run_ids, m.run_id) AND m.drain_end_us IS NOT NULL
GROUP BY m.run_id
ORDER BY m.run_id;
