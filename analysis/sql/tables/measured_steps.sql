-- Grain: one row per run_id, engine, step: every scheduler iteration that scheduled a token.
CREATE TABLE measured_steps (
    run_id VARCHAR NOT NULL,
    engine BIGINT NOT NULL,
    step BIGINT NOT NULL,
    time_us BIGINT NOT NULL,
    scheduled_tokens BIGINT,
    prefill_tokens BIGINT,
    decode_requests BIGINT,
    kv_tokens BIGINT,
    free_blocks BIGINT,
    running BIGINT,
    waiting BIGINT
);
COMMENT ON TABLE measured_steps IS 'One row per run_id, engine, step: every scheduler iteration that scheduled a token.';
COMMENT ON COLUMN measured_steps.run_id IS 'Run the row belongs to.';
COMMENT ON COLUMN measured_steps.engine IS 'Data-parallel index of the engine.';
COMMENT ON COLUMN measured_steps.step IS 'Number of the step within its engine, from 0.';
COMMENT ON COLUMN measured_steps.time_us IS 'Engine clock, microseconds since the run''s start.';
COMMENT ON COLUMN measured_steps.scheduled_tokens IS 'Tokens scheduled in the step.';
COMMENT ON COLUMN measured_steps.prefill_tokens IS 'Tokens of prefill among them.';
COMMENT ON COLUMN measured_steps.decode_requests IS 'Requests that decoded.';
COMMENT ON COLUMN measured_steps.kv_tokens IS 'KV tokens of the batch.';
COMMENT ON COLUMN measured_steps.free_blocks IS 'Free blocks after scheduling.';
COMMENT ON COLUMN measured_steps.running IS 'Running requests.';
COMMENT ON COLUMN measured_steps.waiting IS 'Waiting requests.';
