-- Grain: one row per ledger_id, run_id, modelled_dimension, modelled_from, modelled_tenant.
-- Who was preempted in the replay, by prompt and output size, priority, tenant, preemption count?
-- A group is modelled_from to modelled_to of modelled_dimension, or a tenant. Censored requests are
-- counted.
SELECT *
FROM modelled_groups
ORDER BY
    ledger_id,
    run_id,
    modelled_dimension,
    modelled_from NULLS LAST,
    modelled_tenant NULLS LAST;
