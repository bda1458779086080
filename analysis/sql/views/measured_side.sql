-- Grain: one row per run_id, measured_engine, request_id, unordered. measured_requests with every
-- column named measured_, to stand beside modelled_side.
CREATE VIEW measured_side AS
SELECT
    run_id,
    engine AS measured_engine,
    request_id,
    arrival_us AS measured_arrival_us,
    engine_arrival_us AS measured_engine_arrival_us,
    prompt_tokens AS measured_prompt_tokens,
    generated_tokens AS measured_generated_tokens,
    max_tokens AS measured_max_tokens,
    cached_tokens AS measured_cached_tokens,
    priority AS measured_priority,
    tenant AS measured_tenant,
    prefix_blocks AS measured_prefix_blocks,
    status AS measured_status,
    finish_reason AS measured_finish_reason,
    queue_time_us AS measured_queue_time_us,
    requeue_time_us AS measured_requeue_time_us,
    prefill_time_us AS measured_prefill_time_us,
    decode_time_us AS measured_decode_time_us,
    ttft_us AS measured_ttft_us,
    tpot_us AS measured_tpot_us,
    largest_gap_us AS measured_largest_gap_us,
    e2e_us AS measured_e2e_us,
    num_preemptions AS measured_num_preemptions
FROM measured_requests;
