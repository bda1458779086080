-- Grain: one row per run_id, engine, request_id: what became of each request on the real engine;
-- in a driven run one row per offered request, whatever became of it.
CREATE TABLE measured_requests (
    run_id VARCHAR NOT NULL,
    engine BIGINT,
    request_id VARCHAR NOT NULL,
    arrival_us BIGINT NOT NULL,
    engine_arrival_us BIGINT,
    prompt_tokens BIGINT NOT NULL,
    generated_tokens BIGINT,
    max_tokens BIGINT,
    cached_tokens BIGINT,
    priority BIGINT,
    tenant VARCHAR,
    prefix_blocks BIGINT[],
    status VARCHAR NOT NULL,
    finish_reason VARCHAR,
    queue_time_us BIGINT,
    requeue_time_us BIGINT,
    prefill_time_us BIGINT,
    decode_time_us BIGINT,
    ttft_us BIGINT,
    tpot_us BIGINT,
    largest_gap_us BIGINT,
    e2e_us BIGINT,
    num_preemptions BIGINT
);
COMMENT ON TABLE measured_requests IS 'One row per run_id, engine, request_id: what became of each request on the real engine.';
COMMENT ON COLUMN measured_requests.run_id IS 'Run the row belongs to.';
COMMENT ON COLUMN measured_requests.engine IS 'Data-parallel index of the engine; null for a request that reached none.';
COMMENT ON COLUMN measured_requests.request_id IS 'Request as the client named it, pseudonymous in a shareable run.';
COMMENT ON COLUMN measured_requests.arrival_us IS 'Arrival, microseconds since the run''s start.';
COMMENT ON COLUMN measured_requests.engine_arrival_us IS 'The engine''s own arrival time, which its priority scheduler compares, microseconds since the run''s start.';
COMMENT ON COLUMN measured_requests.prompt_tokens IS 'Tokens of the prompt.';
COMMENT ON COLUMN measured_requests.generated_tokens IS 'Tokens generated.';
COMMENT ON COLUMN measured_requests.max_tokens IS 'Most tokens the request asked for.';
COMMENT ON COLUMN measured_requests.cached_tokens IS 'Prompt tokens found in the prefix cache.';
COMMENT ON COLUMN measured_requests.priority IS 'Lower is more important.';
COMMENT ON COLUMN measured_requests.tenant IS 'Tenant, pseudonymous in a shareable run; null without one.';
COMMENT ON COLUMN measured_requests.prefix_blocks IS 'Ids of the prompt''s chunks; equal ids mean equal text.';
COMMENT ON COLUMN measured_requests.status IS 'ok, aborted, error, censored, unsent or rejected.';
COMMENT ON COLUMN measured_requests.finish_reason IS 'Why generation ended, in the engine''s words.';
COMMENT ON COLUMN measured_requests.queue_time_us IS 'Wait until first scheduled, microseconds; waits after preemptions are not in it.';
COMMENT ON COLUMN measured_requests.requeue_time_us IS 'Waiting after preemptions, microseconds.';
COMMENT ON COLUMN measured_requests.prefill_time_us IS 'First scheduled to first token, microseconds.';
COMMENT ON COLUMN measured_requests.decode_time_us IS 'First token to last token, microseconds.';
COMMENT ON COLUMN measured_requests.ttft_us IS 'First token less arrival, microseconds.';
COMMENT ON COLUMN measured_requests.tpot_us IS '(last token - first token) / (n - 1), microseconds, rounded; null below two tokens.';
COMMENT ON COLUMN measured_requests.largest_gap_us IS 'Longest wait between two chunks with tokens, microseconds, as a load driver saw them; null below two chunks.';
COMMENT ON COLUMN measured_requests.e2e_us IS 'Last token less arrival, microseconds.';
COMMENT ON COLUMN measured_requests.num_preemptions IS 'Times the request was preempted.';
