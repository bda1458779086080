-- Grain: one row per ledger_id, run_id, seq: every event of each replay. After seq to
-- requester_id, the request's counters and the engine's state after the event.
CREATE TABLE modelled_events (
    ledger_id VARCHAR NOT NULL,
    run_id VARCHAR,
    seq BIGINT NOT NULL,
    tick BIGINT NOT NULL,
    time_us BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    request_id VARCHAR NOT NULL,
    requester_id VARCHAR,
    priority BIGINT NOT NULL,
    arrival_tick BIGINT NOT NULL,
    age_ticks BIGINT NOT NULL,
    queue_ticks BIGINT NOT NULL,
    preemptions BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    generated_tokens BIGINT NOT NULL,
    remaining_tokens BIGINT NOT NULL,
    context_tokens BIGINT NOT NULL,
    active_requests BIGINT NOT NULL,
    queue_depth BIGINT NOT NULL,
    queue_position BIGINT,
    capacity_blocks BIGINT NOT NULL,
    occupied_blocks_before BIGINT NOT NULL,
    occupied_blocks_after BIGINT NOT NULL,
    allocated_blocks BIGINT,
    freed_blocks BIGINT,
    recovery VARCHAR,
    recovery_reason VARCHAR,
    recompute_tokens BIGINT,
    swap_out_bytes BIGINT,
    swap_in_bytes BIGINT,
    estimate_recompute_ticks BIGINT,
    estimate_swap_ticks BIGINT,
    host_bytes_after BIGINT NOT NULL,
    work_left_tokens BIGINT,
    work_left_bytes BIGINT
);
COMMENT ON TABLE modelled_events IS 'One row per ledger_id, run_id, seq: events.parquet of each ledger.';
COMMENT ON COLUMN modelled_events.ledger_id IS 'Ledger the row belongs to.';
COMMENT ON COLUMN modelled_events.run_id IS 'Run that the workload came from; null when it came from none.';
COMMENT ON COLUMN modelled_events.seq IS 'Number of the event, from 0 without gaps.';
COMMENT ON COLUMN modelled_events.tick IS 'Scheduler iteration, from 0.';
COMMENT ON COLUMN modelled_events.time_us IS 'Modelled time, microseconds: tick x tick_us, or the sum of timed steps. Not latency.';
COMMENT ON COLUMN modelled_events.kind IS 'arrive, admit, resume, preempt, swapped_out, recovered, first_token, complete, flag_wait, flag_repeat or censored.';
COMMENT ON COLUMN modelled_events.request_id IS 'Request the event is about: the victim of a preempt.';
COMMENT ON COLUMN modelled_events.requester_id IS 'On preempt: the running request that needed the block.';
COMMENT ON COLUMN modelled_events.priority IS 'Lower is more important.';
COMMENT ON COLUMN modelled_events.arrival_tick IS 'Tick of the request''s arrival.';
COMMENT ON COLUMN modelled_events.age_ticks IS 'tick - arrival_tick.';
COMMENT ON COLUMN modelled_events.queue_ticks IS 'Ticks the request was in the queue so far.';
COMMENT ON COLUMN modelled_events.preemptions IS 'Times the request was a victim so far, this one included.';
COMMENT ON COLUMN modelled_events.prompt_tokens IS 'Tokens of the prompt.';
COMMENT ON COLUMN modelled_events.generated_tokens IS 'Tokens generated so far.';
COMMENT ON COLUMN modelled_events.remaining_tokens IS 'Tokens still to generate.';
COMMENT ON COLUMN modelled_events.context_tokens IS 'Prompt and generated tokens.';
COMMENT ON COLUMN modelled_events.active_requests IS 'Running requests.';
COMMENT ON COLUMN modelled_events.queue_depth IS 'Requests in the queue.';
COMMENT ON COLUMN modelled_events.queue_position IS 'On preempt: the victim''s place in the queue, 0 is next.';
COMMENT ON COLUMN modelled_events.capacity_blocks IS 'Usable blocks.';
COMMENT ON COLUMN modelled_events.occupied_blocks_before IS 'Occupied blocks before the event.';
COMMENT ON COLUMN modelled_events.occupied_blocks_after IS 'Occupied blocks after the event.';
COMMENT ON COLUMN modelled_events.allocated_blocks IS 'On admit and resume: blocks taken.';
COMMENT ON COLUMN modelled_events.freed_blocks IS 'On preempt and complete: blocks given back.';
COMMENT ON COLUMN modelled_events.recovery IS 'On preempt and recovered: recompute or swap, what happens to this victim.';
COMMENT ON COLUMN modelled_events.recovery_reason IS 'Why the recovery is not simply the policy''s own: on_host, incomplete, host_full, tie or cheaper.';
COMMENT ON COLUMN modelled_events.recompute_tokens IS 'On preempt: tokens charged. On recovered: tokens recomputed.';
COMMENT ON COLUMN modelled_events.swap_out_bytes IS 'On preempt: bytes charged to copy out. On swapped_out: bytes copied.';
COMMENT ON COLUMN modelled_events.swap_in_bytes IS 'On preempt: bytes charged to copy back. On recovered: bytes copied.';
COMMENT ON COLUMN modelled_events.estimate_recompute_ticks IS 'On preempt: ticks that recomputing was estimated at.';
COMMENT ON COLUMN modelled_events.estimate_swap_ticks IS 'On preempt: ticks that swapping was estimated at.';
COMMENT ON COLUMN modelled_events.host_bytes_after IS 'Swapped bytes held on the host after the event.';
COMMENT ON COLUMN modelled_events.work_left_tokens IS 'Tokens of prefill or replay that were left.';
COMMENT ON COLUMN modelled_events.work_left_bytes IS 'Bytes of restore that were left.';
