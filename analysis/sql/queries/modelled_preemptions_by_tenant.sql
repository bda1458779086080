-- Grain: one row per ledger_id, run_id, modelled_tenant.
-- Whose requests needed the blocks in the replay, and whose were preempted for them?
-- A tenant with more modelled_preemptions_for_it than modelled_preemptions makes the pressure, one
-- with fewer pays for it. Null is the requests without a tenant. Censored requests are counted.
WITH caused AS (
    SELECT e.ledger_id, e.run_id, q.tenant, count(*) AS preemptions
    FROM modelled_events AS e
    JOIN modelled_requests AS q
        ON q.ledger_id = e.ledger_id
        AND q.run_id IS NOT DISTINCT FROM e.run_id
        AND q.request_id = e.requester_id
    WHERE e.kind = 'preempt'
    GROUP BY e.ledger_id, e.run_id, q.tenant
)
SELECT
    g.ledger_id,
    g.run_id,
    g.modelled_tenant,
    g.modelled_requests,
    g.modelled_complete,
    g.modelled_preempted_requests,
    g.modelled_preemptions,
    coalesce(c.preemptions, 0) AS modelled_preemptions_for_it,
    g.modelled_recompute_tokens,
    g.modelled_swap_out_bytes,
    g.modelled_swap_in_bytes
FROM modelled_groups AS g
LEFT JOIN caused AS c
    ON c.ledger_id = g.ledger_id
    AND c.run_id IS NOT DISTINCT FROM g.run_id
    AND c.tenant IS NOT DISTINCT FROM g.modelled_tenant
WHERE g.modelled_dimension = 'tenant'
ORDER BY
    g.ledger_id,
    g.run_id,
    g.modelled_preemptions DESC,
    g.modelled_tenant NULLS LAST;
