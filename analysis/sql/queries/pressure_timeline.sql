-- Grain: one row per ledger_id, run_id, modelled_tick, modelled_requester_id: one pressure event.
-- When did a running request need more blocks than were free, who paid, and with what?
SELECT
    ledger_id,
    run_id,
    tick AS modelled_tick,
    requester_id AS modelled_requester_id,
    min(seq) AS modelled_first_seq,
    count(*) AS modelled_victims,
    list(request_id ORDER BY seq) AS modelled_victim_ids,
    CAST(sum(freed_blocks) AS BIGINT) AS modelled_freed_blocks,
    CAST(sum(recompute_tokens) AS BIGINT) AS modelled_charged_tokens,
    CAST(sum(swap_out_bytes) AS BIGINT) AS modelled_swap_out_bytes,
    CAST(sum(swap_in_bytes) AS BIGINT) AS modelled_swap_in_bytes,
    max(capacity_blocks) AS modelled_capacity_blocks,
    arg_min(occupied_blocks_before, seq) AS modelled_occupied_blocks_before,
    arg_max(active_requests, seq) AS modelled_active_requests,
    arg_max(queue_depth, seq) AS modelled_queue_depth
FROM modelled_events
WHERE kind = 'preempt'
GROUP BY ledger_id, run_id, tick, requester_id
ORDER BY ledger_id, run_id, modelled_first_seq;
