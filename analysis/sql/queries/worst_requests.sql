-- Grain: one row per ledger_id, run_id, request_id that was preempted or flagged.
-- Which requests lost most work to preemption in the replay, and what was their measured TPOT?
-- The measured columns are of the run the workload came from, null where it is not loaded.
SELECT
    c.request_id,
    l.recovery,
    l.victim,
    j.join_kind,
    c.modelled_preemptions,
    c.modelled_recompute_tokens,
    c.modelled_swap_out_bytes,
    c.modelled_swap_in_bytes,
    c.modelled_queue_ticks,
    c.modelled_flagged_wait,
    c.modelled_flagged_repeat,
    j.measured_status,
    j.measured_num_preemptions,
    j.measured_requeue_time_us,
    j.measured_tpot_us,
    c.run_id,
    c.ledger_id
FROM preemption_costs AS c
JOIN modelled_ledgers AS l
    ON l.ledger_id = c.ledger_id AND l.run_id IS NOT DISTINCT FROM c.run_id
LEFT JOIN joined_requests AS j
    ON j.ledger_id = c.ledger_id AND j.run_id = c.run_id AND j.request_id = c.request_id
ORDER BY
    c.modelled_recompute_tokens DESC,
    c.modelled_swap_out_bytes + c.modelled_swap_in_bytes DESC,
    c.modelled_preemptions DESC,
    c.modelled_queue_ticks DESC,
    c.ledger_id,
    c.run_id,
    c.request_id,
    j.measured_engine;
