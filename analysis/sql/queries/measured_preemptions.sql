-- Grain: one row per run_id, measured_engine, measured_seq: one preemption on the real engine.
-- When did the real engine preempt, whom, and what was lost?
SELECT
    run_id,
    engine AS measured_engine,
    seq AS measured_seq,
    step AS measured_step,
    time_us AS measured_time_us,
    request_id,
    num_preemptions AS measured_num_preemptions,
    context_tokens AS measured_context_tokens,
    computed_tokens AS measured_computed_tokens,
    generated_tokens AS measured_generated_tokens,
    freed_blocks AS measured_freed_blocks,
    free_blocks_before AS measured_free_blocks_before,
    running AS measured_running,
    waiting AS measured_waiting
FROM measured_events
WHERE kind = 'preempt'
ORDER BY run_id, measured_engine, measured_seq;
