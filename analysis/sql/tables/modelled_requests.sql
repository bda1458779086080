-- Grain: one row per ledger_id, run_id, request_id: what each request went through in the replay.
CREATE TABLE modelled_requests (
    ledger_id VARCHAR NOT NULL,
    run_id VARCHAR,
    request_id VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    arrival_tick BIGINT NOT NULL,
    first_admit_tick BIGINT,
    first_token_tick BIGINT,
    completion_tick BIGINT,
    prompt_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    generated_tokens BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    tenant VARCHAR,
    preemptions BIGINT NOT NULL,
    queue_ticks BIGINT NOT NULL,
    recompute_tokens BIGINT NOT NULL,
    swap_out_bytes BIGINT NOT NULL,
    swap_in_bytes BIGINT NOT NULL,
    flagged_wait BOOLEAN NOT NULL,
    flagged_repeat BOOLEAN NOT NULL,
    modelled_ttft_ticks BIGINT,
    modelled_tpot_ticks DOUBLE,
    modelled_ttft_us BIGINT,
    modelled_tpot_us BIGINT,
    modelled_queue_us BIGINT,
    modelled_e2e_us BIGINT
);
COMMENT ON TABLE modelled_requests IS 'One row per ledger_id, run_id, request_id: requests.parquet of each ledger, in workload order.';
COMMENT ON COLUMN modelled_requests.ledger_id IS 'Ledger the row belongs to.';
COMMENT ON COLUMN modelled_requests.run_id IS 'Run that the workload came from; null when it came from none.';
COMMENT ON COLUMN modelled_requests.request_id IS 'Request, pseudonymous in anything collected.';
COMMENT ON COLUMN modelled_requests.status IS 'complete, or censored: unfinished at max_ticks.';
COMMENT ON COLUMN modelled_requests.arrival_tick IS 'Tick of arrival.';
COMMENT ON COLUMN modelled_requests.first_admit_tick IS 'Tick of the first admission; null when never admitted.';
COMMENT ON COLUMN modelled_requests.first_token_tick IS 'Tick of the first token; null when none came.';
COMMENT ON COLUMN modelled_requests.completion_tick IS 'Tick of the last token; null when censored.';
COMMENT ON COLUMN modelled_requests.prompt_tokens IS 'Tokens of the prompt.';
COMMENT ON COLUMN modelled_requests.output_tokens IS 'Tokens the workload asks for.';
COMMENT ON COLUMN modelled_requests.generated_tokens IS 'Tokens generated in the replay.';
COMMENT ON COLUMN modelled_requests.priority IS 'Lower is more important.';
COMMENT ON COLUMN modelled_requests.tenant IS 'Tenant, pseudonymous; null without one.';
COMMENT ON COLUMN modelled_requests.preemptions IS 'Times the request was a victim.';
COMMENT ON COLUMN modelled_requests.queue_ticks IS 'Ticks in the queue, first wait and re-entries together. Not latency.';
COMMENT ON COLUMN modelled_requests.recompute_tokens IS 'Tokens its preemptions charged to recompute; 0 when never preempted.';
COMMENT ON COLUMN modelled_requests.swap_out_bytes IS 'Bytes its preemptions charged to copy out; 0 when never preempted.';
COMMENT ON COLUMN modelled_requests.swap_in_bytes IS 'Bytes its preemptions charged to copy back; 0 when never preempted.';
COMMENT ON COLUMN modelled_requests.flagged_wait IS 'Whether its queue ticks went beyond max_queue_ticks.';
COMMENT ON COLUMN modelled_requests.flagged_repeat IS 'Whether its preemptions went beyond max_preemptions.';
COMMENT ON COLUMN modelled_requests.modelled_ttft_ticks IS 'First token less arrival, ticks; null without a token. Not latency.';
COMMENT ON COLUMN modelled_requests.modelled_tpot_ticks IS '(completion - first token) / (generated - 1), ticks; null below two tokens. Not latency.';
COMMENT ON COLUMN modelled_requests.modelled_ttft_us IS 'Timed replay: modelled time to first token, microseconds; null without timing.';
COMMENT ON COLUMN modelled_requests.modelled_tpot_us IS 'Timed replay: modelled time per output token, microseconds; null without timing.';
COMMENT ON COLUMN modelled_requests.modelled_queue_us IS 'Timed replay: modelled time in the queue, microseconds; null without timing.';
COMMENT ON COLUMN modelled_requests.modelled_e2e_us IS 'Timed replay: last token less arrival, microseconds; null without timing.';
