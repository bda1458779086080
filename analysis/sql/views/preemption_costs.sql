-- Grain: one row per ledger_id, run_id, request_id that was preempted or flagged: what preemption
-- cost it in the replay. Of each ledger the request that lost most comes first.
CREATE VIEW preemption_costs AS
WITH victims AS (
    SELECT
        ledger_id,
        run_id,
        request_id,
        CAST(sum(freed_blocks) AS BIGINT) AS freed_blocks,
        min(tick) AS first_tick,
        max(tick) AS last_tick
    FROM modelled_events
    WHERE kind = 'preempt'
    GROUP BY ledger_id, run_id, request_id
)
SELECT
    q.ledger_id,
    q.run_id,
    q.request_id,
    q.status AS modelled_status,
    q.priority AS modelled_priority,
    q.tenant AS modelled_tenant,
    q.prompt_tokens AS modelled_prompt_tokens,
    q.generated_tokens AS modelled_generated_tokens,
    q.preemptions AS modelled_preemptions,
    q.recompute_tokens AS modelled_recompute_tokens,
    q.swap_out_bytes AS modelled_swap_out_bytes,
    q.swap_in_bytes AS modelled_swap_in_bytes,
    q.queue_ticks AS modelled_queue_ticks,
    q.flagged_wait AS modelled_flagged_wait,
    q.flagged_repeat AS modelled_flagged_repeat,
    v.freed_blocks AS modelled_freed_blocks,
    v.first_tick AS modelled_first_preempt_tick,
    v.last_tick AS modelled_last_preempt_tick
FROM modelled_requests AS q
LEFT JOIN victims AS v
    ON v.ledger_id = q.ledger_id
    AND v.run_id IS NOT DISTINCT FROM q.run_id
    AND v.request_id = q.request_id
WHERE q.preemptions > 0 OR q.flagged_wait OR q.flagged_repeat
ORDER BY
    q.ledger_id,
    q.run_id,
    q.recompute_tokens DESC,
    q.swap_out_bytes + q.swap_in_bytes DESC,
    q.preemptions DESC,
    q.queue_ticks DESC,
    q.request_id;
