-- Grain: one row per ledger_id and run_id: the same replay of a workload that two runs were
-- offered is two rows. What was replayed under which rule, and what it came to.
CREATE TABLE modelled_ledgers (
    ledger_id VARCHAR NOT NULL,
    run_id VARCHAR,
    workload_name VARCHAR,
    profile VARCHAR NOT NULL,
    rule VARCHAR NOT NULL,
    assumed_from VARCHAR,
    tick_us BIGINT,
    block_size BIGINT NOT NULL,
    capacity_blocks BIGINT NOT NULL,
    max_num_seqs BIGINT NOT NULL,
    max_num_batched_tokens BIGINT,
    max_model_len BIGINT,
    scheduling_policy VARCHAR,
    enable_chunked_prefill BOOLEAN,
    scheduler_reserve_full_isl BOOLEAN,
    watermark DOUBLE,
    long_prefill_token_threshold BIGINT,
    enable_prefix_caching BOOLEAN,
    async_scheduling BOOLEAN,
    recovery VARCHAR NOT NULL,
    victim VARCHAR NOT NULL,
    kv_bytes_per_token BIGINT NOT NULL,
    prefill_tokens_per_tick BIGINT NOT NULL,
    transfer_bytes_per_tick BIGINT NOT NULL,
    host_capacity_bytes BIGINT NOT NULL,
    max_queue_ticks BIGINT NOT NULL,
    max_preemptions BIGINT NOT NULL,
    max_requests BIGINT NOT NULL,
    max_ticks BIGINT NOT NULL,
    step_ns BIGINT,
    prefill_token_ps BIGINT,
    decode_request_ps BIGINT,
    kv_token_ps BIGINT,
    calibration_run_id VARCHAR,
    calibration_source VARCHAR,
    modelled_timed_steps BIGINT,
    modelled_steps_outside BIGINT,
    workload_sha256 VARCHAR NOT NULL,
    input_sha256 VARCHAR NOT NULL,
    event_sha256 VARCHAR NOT NULL,
    receipt_sha256 VARCHAR NOT NULL,
    modelled_requests BIGINT,
    modelled_pressure_events BIGINT,
    modelled_preemptions BIGINT,
    modelled_freed_blocks BIGINT,
    modelled_charged_tokens BIGINT,
    modelled_replayed_tokens BIGINT,
    modelled_swap_out_bytes BIGINT,
    modelled_swap_in_bytes BIGINT,
    modelled_queue_ticks BIGINT,
    modelled_completions BIGINT,
    modelled_censored BIGINT,
    modelled_generated_tokens BIGINT,
    modelled_executed_tokens BIGINT,
    modelled_recompute_tax_frac DOUBLE,
    verified VARCHAR NOT NULL,
    tool_version VARCHAR,
    receipt JSON NOT NULL
);
-- NULLs count as equal here, which they do not in a UNIQUE constraint.
CREATE UNIQUE INDEX modelled_ledgers_key ON modelled_ledgers (ledger_id, coalesce(run_id, ''));
COMMENT ON TABLE modelled_ledgers IS 'One row per ledger_id and run_id: what was replayed and what it came to.';
COMMENT ON COLUMN modelled_ledgers.ledger_id IS 'receipt_sha256 of the ledger.';
COMMENT ON COLUMN modelled_ledgers.run_id IS 'Run that the workload came from, by its provenance; null when it came from none.';
COMMENT ON COLUMN modelled_ledgers.workload_name IS 'Name the workload carried; null without one.';
COMMENT ON COLUMN modelled_ledgers.profile IS 'Whose scheduler was modelled: lab or vllm-v1.';
COMMENT ON COLUMN modelled_ledgers.rule IS 'Version of the scheduling rule: lab-1, or vllm- and the release it was checked against.';
COMMENT ON COLUMN modelled_ledgers.assumed_from IS 'Checked rule that stands in for a rule that nobody checked; null where the rule was checked.';
COMMENT ON COLUMN modelled_ledgers.tick_us IS 'Declared length of a tick, microseconds; null in a timed replay.';
COMMENT ON COLUMN modelled_ledgers.block_size IS 'Tokens of KV cache in a block.';
COMMENT ON COLUMN modelled_ledgers.capacity_blocks IS 'Usable blocks (vLLM''s num_gpu_blocks less its null block).';
COMMENT ON COLUMN modelled_ledgers.max_num_seqs IS 'Most requests running at once.';
COMMENT ON COLUMN modelled_ledgers.max_num_batched_tokens IS 'Token budget of a step; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.max_model_len IS 'Most tokens of prompt and output; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.scheduling_policy IS 'fcfs or priority; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.enable_chunked_prefill IS 'Whether prefill may be split over steps; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.scheduler_reserve_full_isl IS 'Whether admission checks the whole context; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.watermark IS 'Fraction of blocks kept free at admission; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.long_prefill_token_threshold IS 'Most prefill tokens of one request in a step, 0 for no bound; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.enable_prefix_caching IS 'Whether freed blocks stay findable; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.async_scheduling IS 'Whether two batches are in flight; null in the lab.';
COMMENT ON COLUMN modelled_ledgers.recovery IS 'Recovery policy: recompute, swap or adaptive. vLLM V1 recomputes, the others are what-ifs.';
COMMENT ON COLUMN modelled_ledgers.victim IS 'Victim rule: rule is the profile''s own, other names are what-ifs.';
COMMENT ON COLUMN modelled_ledgers.kv_bytes_per_token IS 'Declared KV bytes of a token.';
COMMENT ON COLUMN modelled_ledgers.prefill_tokens_per_tick IS 'Declared prefill rate, tokens per tick.';
COMMENT ON COLUMN modelled_ledgers.transfer_bytes_per_tick IS 'Declared host link rate, bytes per tick, both directions together.';
COMMENT ON COLUMN modelled_ledgers.host_capacity_bytes IS 'Host bytes for swapped KV, 0 for no bound.';
COMMENT ON COLUMN modelled_ledgers.max_queue_ticks IS 'Queue ticks beyond which a request is flagged.';
COMMENT ON COLUMN modelled_ledgers.max_preemptions IS 'Preemptions beyond which a request is flagged.';
COMMENT ON COLUMN modelled_ledgers.max_requests IS 'Most requests the replay accepted.';
COMMENT ON COLUMN modelled_ledgers.max_ticks IS 'Ticks the replay covered at most.';
COMMENT ON COLUMN modelled_ledgers.step_ns IS 'Timed replay: nanoseconds of every step; null without timing.';
COMMENT ON COLUMN modelled_ledgers.prefill_token_ps IS 'Timed replay: picoseconds per prefill token; null without timing.';
COMMENT ON COLUMN modelled_ledgers.decode_request_ps IS 'Timed replay: picoseconds per decoding request; null without timing.';
COMMENT ON COLUMN modelled_ledgers.kv_token_ps IS 'Timed replay: picoseconds per KV token of the batch; null without timing.';
COMMENT ON COLUMN modelled_ledgers.calibration_run_id IS 'Run that the durations were fitted to; null without timing, or where nobody says.';
COMMENT ON COLUMN modelled_ledgers.calibration_source IS 'What of that run they were fitted to: steps, or requests, which is weaker.';
COMMENT ON COLUMN modelled_ledgers.modelled_timed_steps IS 'Timed replay: steps that computed something; null without timing.';
COMMENT ON COLUMN modelled_ledgers.modelled_steps_outside IS 'Of them, those beyond the greatest batch of the calibration; null without timing.';
COMMENT ON COLUMN modelled_ledgers.workload_sha256 IS 'Hash of the workload''s text form.';
COMMENT ON COLUMN modelled_ledgers.input_sha256 IS 'Hash of workload and configuration without the policy choice.';
COMMENT ON COLUMN modelled_ledgers.event_sha256 IS 'Hash of the events'' binary form.';
COMMENT ON COLUMN modelled_ledgers.receipt_sha256 IS 'Hash of the receipt without this hash; the same as ledger_id.';
COMMENT ON COLUMN modelled_ledgers.modelled_requests IS 'Requests replayed.';
COMMENT ON COLUMN modelled_ledgers.modelled_pressure_events IS 'Moments at which a running request needed more blocks than were free.';
COMMENT ON COLUMN modelled_ledgers.modelled_preemptions IS 'Victims, counted each time.';
COMMENT ON COLUMN modelled_ledgers.modelled_freed_blocks IS 'Blocks that preemptions freed.';
COMMENT ON COLUMN modelled_ledgers.modelled_charged_tokens IS 'Tokens that preemptions charged to recompute.';
COMMENT ON COLUMN modelled_ledgers.modelled_replayed_tokens IS 'Tokens that finished recoveries recomputed.';
COMMENT ON COLUMN modelled_ledgers.modelled_swap_out_bytes IS 'Bytes copied to the host.';
COMMENT ON COLUMN modelled_ledgers.modelled_swap_in_bytes IS 'Bytes copied back from the host.';
COMMENT ON COLUMN modelled_ledgers.modelled_queue_ticks IS 'Ticks in the queue, summed over requests. Not latency.';
COMMENT ON COLUMN modelled_ledgers.modelled_completions IS 'Requests that completed.';
COMMENT ON COLUMN modelled_ledgers.modelled_censored IS 'Requests unfinished at max_ticks.';
COMMENT ON COLUMN modelled_ledgers.modelled_generated_tokens IS 'Tokens generated.';
COMMENT ON COLUMN modelled_ledgers.modelled_executed_tokens IS 'Tokens the ledger shows as computed: lab, prefilled, replayed and generated; vllm-v1, positions.';
COMMENT ON COLUMN modelled_ledgers.modelled_recompute_tax_frac IS 'Recomputed part of the executed tokens, 0 to 1; null when nothing was executed.';
COMMENT ON COLUMN modelled_ledgers.verified IS 'How it was checked when it was loaded: events, each derived again, or columns, what whole columns show.';
COMMENT ON COLUMN modelled_ledgers.tool_version IS 'Version of preemption-ledger that made the ledger.';
COMMENT ON COLUMN modelled_ledgers.receipt IS 'The whole receipt, canonical JSON, limitations included.';
