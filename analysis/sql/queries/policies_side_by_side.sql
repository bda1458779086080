-- Grain: one row per ledger_id, run_id.
-- What does each policy cost on the same inputs? Rows of equal input_sha256 differ in nothing but
-- recovery and victim; what_ifs says where a vllm-v1 ledger leaves what vLLM does. The recompute
-- tax is the percentage of all executed tokens that had been computed before.
SELECT
    l.input_sha256,
    l.recovery,
    l.victim,
    CAST(l.receipt -> '$.what_ifs' AS VARCHAR[]) AS what_ifs,
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
    round(100 * l.modelled_recompute_tax_frac, 2) AS modelled_recompute_tax_percent,
    f.modelled_flagged_wait_requests,
    f.modelled_flagged_repeat_requests,
    l.run_id,
    l.ledger_id
FROM modelled_ledgers AS l
LEFT JOIN flagged_requests AS f
    ON f.ledger_id = l.ledger_id AND f.run_id IS NOT DISTINCT FROM l.run_id
ORDER BY l.workload_sha256, l.input_sha256, l.recovery, l.victim, l.run_id, l.ledger_id;
