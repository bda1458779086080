-- Grain: one row per ledger_id, run_id, modelled_tick, modelled_requester_id: one pressure event.
-- When did a running request need more blocks than were free, who paid, and with what?
SELECT
    e.ledger_id,
    e.run_id,
    l.recovery,
    l.victim,
    e.tick AS modelled_tick,
    e.requester_id AS modelled_requester_id,
    min(e.seq) AS modelled_first_seq,
    count(*) AS modelled_victims,
    list(e.request_id ORDER BY e.seq) AS modelled_victim_ids,
    CAST(sum(e.freed_blocks) AS BIGINT) AS modelled_freed_blocks,
    CAST(sum(e.recompute_tokens) AS BIGINT) AS modelled_charged_tokens,
    CAST(sum(e.swap_out_bytes) AS BIGINT) AS modelled_swap_out_bytes,
    CAST(sum(e.swap_in_bytes) AS BIGINT) AS modelled_swap_in_bytes,
    max(e.capacity_blocks) AS modelled_capacity_blocks,
    arg_min(e.occupied_blocks_before, e.seq) AS modelled_occupied_blocks_before,
    arg_max(e.active_requests, e.seq) AS modelled_active_requests,
    arg_max(e.queue_depth, e.seq) AS modelled_queue_depth
FROM modelled_events AS e
JOIN modelled_ledgers AS l
    ON l.ledger_id = e.ledger_id AND l.run_id IS NOT DISTINCT FROM e.run_id
WHERE e.kind = 'preempt'
GROUP BY e.ledger_id, e.run_id, l.recovery, l.victim, e.tick, e.requester_id
ORDER BY e.ledger_id, e.run_id, modelled_first_seq;
