-- Grain: one row per run_id, measured_dimension, engine, request_id, unordered: every request of a
-- run, whatever became of it, once for each way to group requests. Filter measured_dimension: all,
-- prompt_tokens and output_tokens (from a power of two up to the next), priority, tenant or
-- preemptions. group_from is the group's least number, tenant its name; null is a group, too: the
-- requests of which nobody knows it. output_tokens are those generated, so a request that failed
-- stands with those as far as it came.
CREATE VIEW measured_request_groups AS
SELECT
    *,
    'all' AS measured_dimension,
    CAST(NULL AS BIGINT) AS group_from,
    CAST(NULL AS VARCHAR) AS group_tenant
FROM measured_requests
UNION ALL
SELECT
    *,
    'prompt_tokens',
    CASE
        WHEN prompt_tokens > 0 THEN TRY_CAST(pow(2, floor(log2(prompt_tokens))) AS BIGINT)
        ELSE prompt_tokens
    END,
    NULL
FROM measured_requests
UNION ALL
SELECT
    *,
    'output_tokens',
    CASE
        WHEN generated_tokens > 0 THEN TRY_CAST(pow(2, floor(log2(generated_tokens))) AS BIGINT)
        ELSE generated_tokens
    END,
    NULL
FROM measured_requests
UNION ALL
SELECT *, 'priority', priority, NULL
FROM measured_requests
UNION ALL
SELECT *, 'tenant', NULL, tenant
FROM measured_requests
UNION ALL
SELECT *, 'preemptions', num_preemptions, NULL
FROM measured_requests;
