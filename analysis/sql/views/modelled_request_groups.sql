-- Grain: one row per ledger_id, run_id, modelled_dimension, request_id, unordered: every request of
-- a ledger, censored ones included, once for each way to group requests, as in
-- measured_request_groups. output_tokens are those the workload asks for.
CREATE VIEW modelled_request_groups AS
SELECT
    *,
    'all' AS modelled_dimension,
    CAST(NULL AS BIGINT) AS group_from,
    CAST(NULL AS VARCHAR) AS group_tenant
FROM modelled_requests
UNION ALL
SELECT
    *,
    'prompt_tokens',
    CASE
        WHEN prompt_tokens > 0 THEN TRY_CAST(pow(2, floor(log2(prompt_tokens))) AS BIGINT)
        ELSE prompt_tokens
    END,
    NULL
FROM modelled_requests
UNION ALL
SELECT
    *,
    'output_tokens',
    CASE
        WHEN output_tokens > 0 THEN TRY_CAST(pow(2, floor(log2(output_tokens))) AS BIGINT)
        ELSE output_tokens
    END,
    NULL
FROM modelled_requests
UNION ALL
SELECT *, 'priority', priority, NULL
FROM modelled_requests
UNION ALL
SELECT *, 'tenant', NULL, tenant
FROM modelled_requests
UNION ALL
SELECT *, 'preemptions', preemptions, NULL
FROM modelled_requests;
