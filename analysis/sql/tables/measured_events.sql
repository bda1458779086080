-- Grain: one row per run_id, engine, seq: what the recorder inside the real engine saw.
CREATE TABLE measured_events (
    run_id VARCHAR NOT NULL,
    engine BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    step BIGINT NOT NULL,
    time_us BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    request_id VARCHAR NOT NULL,
    context_tokens BIGINT,
    computed_tokens BIGINT,
    generated_tokens BIGINT,
    freed_blocks BIGINT,
    free_blocks_before BIGINT,
    running BIGINT,
    waiting BIGINT,
    num_preemptions BIGINT
);
COMMENT ON TABLE measured_events IS 'One row per run_id, engine, seq: what the recorder inside the real engine saw.';
COMMENT ON COLUMN measured_events.run_id IS 'Run the row belongs to.';
COMMENT ON COLUMN measured_events.engine IS 'Data-parallel index of the engine.';
COMMENT ON COLUMN measured_events.seq IS 'Number of the event within its engine.';
COMMENT ON COLUMN measured_events.step IS 'Scheduler iteration that scheduled at least one token, from 0; an arrive''s is the first that can schedule it.';
COMMENT ON COLUMN measured_events.time_us IS 'Engine clock, microseconds since the run''s start.';
COMMENT ON COLUMN measured_events.kind IS 'arrive, admit, preempt, resume or finish.';
COMMENT ON COLUMN measured_events.request_id IS 'Request the event is about: the victim of a preempt.';
COMMENT ON COLUMN measured_events.context_tokens IS 'Prompt and generated tokens; always there on preempt.';
COMMENT ON COLUMN measured_events.computed_tokens IS 'Tokens whose KV was there; on preempt: what the victim loses.';
COMMENT ON COLUMN measured_events.generated_tokens IS 'Tokens generated so far; always there on preempt and finish.';
COMMENT ON COLUMN measured_events.freed_blocks IS 'On preempt: blocks given back.';
COMMENT ON COLUMN measured_events.free_blocks_before IS 'On preempt: free blocks before it.';
COMMENT ON COLUMN measured_events.running IS 'Running requests.';
COMMENT ON COLUMN measured_events.waiting IS 'Waiting requests.';
COMMENT ON COLUMN measured_events.num_preemptions IS 'Times the request was preempted so far.';
