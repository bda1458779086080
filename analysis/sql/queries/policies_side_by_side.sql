-- Grain: one row per ledger_id, run_id.
-- What does each policy cost on the same inputs? Rows of equal input_sha256 differ in nothing but
-- recovery and victim.
WITH flagged AS (
    SELECT
        ledger_id,
        run_id,
        count(*) FILTER (WHERE flagged_wait) AS wait,
        count(*) FILTER (WHERE flagged_repeat) AS repeat
    FROM modelled_requests
    GROUP BY ledger_id, run_id
)
SELECT
    l.input_sha256,
    l.recovery,
    l.victim,
    l.profile,
    l.rule,
    l.capacity_blocks,
    l.modelled_requests,
    l.modelled_completions,
    l.modelled_censored,
    l.modelled_pressure_events,
    l.modelled_preemptions,
    l.modelled_freed_blocks,
    l.modelled_charged_tokens,
    l.modelled_replayed_tokens,
    l.modelled_swap_out_bytes,
    l.modelled_swap_in_bytes,
    l.modelled_queue_ticks,
    l.modelled_recompute_tax_frac,
    f.wait AS modelled_flagged_wait_requests,
    f.repeat AS modelled_flagged_repeat_requests,
    l.run_id,
    l.ledger_id
FROM modelled_ledgers AS l
LEFT JOIN flagged AS f
    ON f.ledger_id = l.ledger_id AND f.run_id IS NOT DISTINCT FROM l.run_id
ORDER BY l.workload_sha256, l.input_sha256, l.recovery, l.victim, l.run_id, l.ledger_id;
