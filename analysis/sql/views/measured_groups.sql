-- Grain: one row per run_id, measured_dimension and group (measured_from or measured_tenant),
-- unordered: what became of the requests of each group, and how often they were preempted. No
-- request is left out. Preemptions are null where nobody counted those of a request that reached
-- the engine; measured_generated_tokens is what is known of, in measured_generated_known requests.
CREATE VIEW measured_groups AS
WITH groups AS (
    SELECT
        run_id,
        measured_dimension,
        group_from,
        group_tenant,
        count(*) AS requests,
        count(*) FILTER (WHERE status = 'ok') AS ok,
        count(*) FILTER (WHERE status = 'aborted') AS aborted,
        count(*) FILTER (WHERE status = 'error') AS error,
        count(*) FILTER (WHERE status = 'censored') AS censored,
        count(*) FILTER (WHERE status = 'unsent') AS unsent,
        count(*) FILTER (WHERE status = 'rejected') AS rejected,
        CAST(sum(prompt_tokens) AS BIGINT) AS prompt_tokens,
        count(generated_tokens) AS generated_known,
        CAST(sum(generated_tokens) AS BIGINT) AS generated_tokens,
        count(*) FILTER (
            WHERE num_preemptions IS NULL AND status NOT IN ('unsent', 'rejected')
        ) AS uncounted,
        count(*) FILTER (WHERE num_preemptions > 0) AS preempted,
        coalesce(CAST(sum(num_preemptions) AS BIGINT), 0) AS preemptions
    FROM measured_request_groups
    GROUP BY run_id, measured_dimension, group_from, group_tenant
)
SELECT
    run_id,
    measured_dimension,
    group_from AS measured_from,
    CASE
        WHEN measured_dimension IN ('prompt_tokens', 'output_tokens')
            THEN greatest(2 * CAST(group_from AS HUGEINT) - 1, group_from)
        ELSE group_from
    END AS measured_to,
    group_tenant AS measured_tenant,
    requests AS measured_requests,
    ok AS measured_ok,
    aborted AS measured_aborted,
    error AS measured_error,
    censored AS measured_censored,
    unsent AS measured_unsent,
    rejected AS measured_rejected,
    prompt_tokens AS measured_prompt_tokens,
    generated_known AS measured_generated_known,
    generated_tokens AS measured_generated_tokens,
    CASE WHEN uncounted = 0 THEN preempted END AS measured_preempted_requests,
    CASE WHEN uncounted = 0 THEN preemptions END AS measured_preemptions
FROM groups;
