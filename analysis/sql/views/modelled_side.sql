-- Grain: one row per ledger_id, run_id, request_id, unordered. modelled_requests with every column
-- named modelled_, to stand beside measured_side.
CREATE VIEW modelled_side AS
SELECT
    ledger_id,
    run_id,
    request_id,
    status AS modelled_status,
    arrival_tick AS modelled_arrival_tick,
    first_admit_tick AS modelled_first_admit_tick,
    first_token_tick AS modelled_first_token_tick,
    completion_tick AS modelled_completion_tick,
    prompt_tokens AS modelled_prompt_tokens,
    output_tokens AS modelled_output_tokens,
    generated_tokens AS modelled_generated_tokens,
    priority AS modelled_priority,
    tenant AS modelled_tenant,
    preemptions AS modelled_preemptions,
    queue_ticks AS modelled_queue_ticks,
    recompute_tokens AS modelled_recompute_tokens,
    swap_out_bytes AS modelled_swap_out_bytes,
    swap_in_bytes AS modelled_swap_in_bytes,
    flagged_wait AS modelled_flagged_wait,
    flagged_repeat AS modelled_flagged_repeat,
    modelled_ttft_ticks,
    modelled_tpot_ticks,
    modelled_ttft_us,
    modelled_tpot_us,
    modelled_queue_us,
    modelled_e2e_us
FROM modelled_requests;
