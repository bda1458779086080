-- Grain: one row per ledger_id, run_id, request_id (and measured_engine) that both the replay and the
-- run have, of joins that are fidelity only, unordered. Measured times are the engine's own where it
-- recorded them (measured_clock engine: queue, prefill and decode time), because a replay models no
-- client and no API server; else the client's. fidelity_level says what the comparison is worth:
-- stepped (arrivals in the engine's own steps), timed, calibrated on this run, timed, calibrated on
-- another run (a forecast), timed, uncalibrated, or constant ticks.
CREATE VIEW fidelity_requests AS
WITH waited AS (
    SELECT
        ledger_id,
        run_id,
        request_id,
        sum(CASE kind WHEN 'resume' THEN time_us ELSE -time_us END) AS modelled_requeue_us,
        count(*) FILTER (kind = 'resume') = count(*) FILTER (kind = 'preempt') AS resumed
    FROM modelled_events
    WHERE kind IN ('preempt', 'resume')
    GROUP BY ledger_id, run_id, request_id
)
SELECT
    j.ledger_id,
    j.run_id,
    j.request_id,
    j.measured_engine,
    CASE
        WHEN j.join_arrivals = 'steps' THEN 'stepped'
        WHEN l.step_ns IS NULL THEN 'constant ticks'
        WHEN l.calibration_run_id IS NULL THEN 'timed, uncalibrated'
        WHEN l.calibration_run_id = j.run_id THEN 'timed, calibrated on this run'
        ELSE 'timed, calibrated on another run'
    END AS fidelity_level,
    CASE
        WHEN j.measured_queue_time_us + j.measured_prefill_time_us IS NULL THEN 'client'
        ELSE 'engine'
    END AS measured_clock,
    j.modelled_status,
    j.measured_status,
    j.modelled_prompt_tokens,
    j.modelled_output_tokens,
    j.modelled_preemptions,
    j.measured_num_preemptions,
    j.modelled_ttft_us,
    coalesce(j.measured_queue_time_us + j.measured_prefill_time_us, j.measured_ttft_us)
        AS measured_ttft_us,
    j.modelled_tpot_us,
    CASE
        WHEN j.measured_generated_tokens < 2 THEN NULL
        ELSE coalesce(
            j.measured_decode_time_us / (j.measured_generated_tokens - 1), j.measured_tpot_us
        )
    END AS measured_tpot_us,
    j.modelled_e2e_us,
    -- An end after another number of tokens (aborted, cut off) is another thing's.
    CASE
        WHEN j.measured_generated_tokens <> j.modelled_generated_tokens THEN NULL
        ELSE coalesce(
            j.measured_queue_time_us + j.measured_prefill_time_us + j.measured_decode_time_us,
            j.measured_e2e_us
        )
    END AS measured_e2e_us,
    j.modelled_queue_us,
    j.measured_queue_time_us,
    CASE
        WHEN l.step_ns IS NULL THEN NULL
        WHEN w.request_id IS NULL THEN 0
        WHEN w.resumed THEN w.modelled_requeue_us
    END AS modelled_requeue_us,
    j.measured_requeue_time_us
FROM joined_requests AS j
JOIN modelled_ledgers AS l ON l.ledger_id = j.ledger_id AND l.run_id = j.run_id
LEFT JOIN waited AS w
    ON w.ledger_id = j.ledger_id AND w.run_id = j.run_id AND w.request_id = j.request_id
WHERE j.join_kind = 'fidelity' AND j.join_side = 'both';
