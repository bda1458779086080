-- Grain: one row per ledger_id, run_id, modelled_seq, unordered: one preemption of the replay, who
-- needed the blocks, what it was charged, and when its victim was resumed; null where it was not
-- before the replay's end. Ticks are not latency; modelled_wait_us is of a timed replay, null in
-- any other.
CREATE VIEW modelled_victim_waits AS
SELECT
    p.ledger_id,
    p.run_id,
    p.seq AS modelled_seq,
    p.request_id,
    p.requester_id AS modelled_requester_id,
    p.tick AS modelled_preempt_tick,
    p.preemptions AS modelled_nth_preemption,
    p.generated_tokens AS modelled_generated_tokens,
    p.recovery AS modelled_recovery,
    p.recompute_tokens AS modelled_recompute_tokens,
    p.swap_out_bytes AS modelled_swap_out_bytes,
    p.swap_in_bytes AS modelled_swap_in_bytes,
    r.tick AS modelled_resume_tick,
    r.tick - p.tick AS modelled_wait_ticks,
    CASE WHEN l.tick_us IS NULL THEN r.time_us - p.time_us END AS modelled_wait_us
FROM modelled_events AS p
JOIN modelled_ledgers AS l
    ON l.ledger_id = p.ledger_id AND l.run_id IS NOT DISTINCT FROM p.run_id
-- A request is resumed once after each preemption, and both count as many so far.
LEFT JOIN modelled_events AS r
    ON r.kind = 'resume'
    AND r.request_id = p.request_id
    AND r.preemptions = p.preemptions
    AND r.ledger_id = p.ledger_id
    AND r.run_id IS NOT DISTINCT FROM p.run_id
WHERE p.kind = 'preempt';
