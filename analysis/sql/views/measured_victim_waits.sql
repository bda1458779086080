-- Grain: one row per run_id, measured_engine, measured_seq, unordered: one preemption that the
-- recorder saw, what it lost, and when its victim was resumed; null where it was not, or not any
-- more within the recording.
CREATE VIEW measured_victim_waits AS
WITH moves AS (
    SELECT
        *,
        lead(kind) OVER request AS next_kind,
        lead(time_us) OVER request AS next_us
    FROM measured_events
    WHERE kind IN ('preempt', 'resume')
    WINDOW request AS (PARTITION BY run_id, engine, request_id ORDER BY seq)
)
SELECT
    run_id,
    engine AS measured_engine,
    seq AS measured_seq,
    request_id,
    time_us AS measured_preempt_us,
    num_preemptions AS measured_nth_preemption,
    generated_tokens AS measured_generated_tokens,
    computed_tokens AS measured_lost_tokens,
    CASE WHEN next_kind = 'resume' THEN next_us END AS measured_resume_us,
    CASE WHEN next_kind = 'resume' THEN next_us - time_us END AS measured_wait_us
FROM moves
WHERE kind = 'preempt';
