-- Grain: one row per ledger_id, run_id, modelled_dimension and group (modelled_from or
-- modelled_tenant), unordered: what became of the requests of each group in the replay, and what
-- preemption cost them. No request is left out.
CREATE VIEW modelled_groups AS
WITH groups AS (
    SELECT
        ledger_id,
        run_id,
        modelled_dimension,
        group_from,
        group_tenant,
        count(*) AS requests,
        count(*) FILTER (WHERE status = 'complete') AS complete,
        count(*) FILTER (WHERE status = 'censored') AS censored,
        CAST(sum(prompt_tokens) AS BIGINT) AS prompt_tokens,
        CAST(sum(generated_tokens) AS BIGINT) AS generated_tokens,
        count(*) FILTER (WHERE preemptions > 0) AS preempted,
        CAST(sum(preemptions) AS BIGINT) AS preemptions,
        CAST(sum(recompute_tokens) AS BIGINT) AS recompute_tokens,
        CAST(sum(swap_out_bytes) AS BIGINT) AS swap_out_bytes,
        CAST(sum(swap_in_bytes) AS BIGINT) AS swap_in_bytes
    FROM modelled_request_groups
    GROUP BY ledger_id, run_id, modelled_dimension, group_from, group_tenant
)
SELECT
    ledger_id,
    run_id,
    modelled_dimension,
    group_from AS modelled_from,
    CASE
        WHEN modelled_dimension IN ('prompt_tokens', 'output_tokens')
            THEN greatest(2 * CAST(group_from AS HUGEINT) - 1, group_from)
        ELSE group_from
    END AS modelled_to,
    group_tenant AS modelled_tenant,
    requests AS modelled_requests,
    complete AS modelled_complete,
    censored AS modelled_censored,
    prompt_tokens AS modelled_prompt_tokens,
    generated_tokens AS modelled_generated_tokens,
    preempted AS modelled_preempted_requests,
    preemptions AS modelled_preemptions,
    recompute_tokens AS modelled_recompute_tokens,
    swap_out_bytes AS modelled_swap_out_bytes,
    swap_in_bytes AS modelled_swap_in_bytes
FROM groups;
