-- Grain: one row per run_id, measured_engine, request_id that the recorder saw preempted.
-- Which requests lost most work to preemption on the real engine, and what did it do to their TPOT?
-- Waiting after the first token is part of a request's TPOT: measured_tpot_wait_us per token, and
-- measured_tpot_rest_us is what is left. Beside it the median TPOT of the same run's requests that
-- ended well and were never preempted: whatever differs beyond the wait is slower steps,
-- recomputing included. Null is unknown.
WITH calm AS (
    SELECT run_id, quantile_cont(tpot_us, 0.5) AS tpot_us
    FROM measured_requests
    WHERE status = 'ok' AND num_preemptions = 0
    GROUP BY run_id
)
SELECT
    v.run_id,
    v.measured_engine,
    v.request_id,
    q.tenant AS measured_tenant,
    q.priority AS measured_priority,
    q.status AS measured_status,
    q.prompt_tokens AS measured_prompt_tokens,
    q.generated_tokens AS measured_generated_tokens,
    v.measured_preempt_events,
    v.measured_lost_tokens,
    v.measured_wait_us,
    v.measured_wait_before_first_token_us,
    q.tpot_us AS measured_tpot_us,
    CASE
        WHEN q.tpot_us IS NOT NULL
            THEN
                (v.measured_wait_us - v.measured_wait_before_first_token_us)
                / nullif(q.generated_tokens - 1, 0)
    END AS measured_tpot_wait_us,
    q.tpot_us - measured_tpot_wait_us AS measured_tpot_rest_us,
    c.tpot_us AS measured_tpot_never_preempted_p50_us
FROM measured_victims AS v
LEFT JOIN measured_requests AS q
    ON q.run_id = v.run_id
    AND q.engine = v.measured_engine
    AND q.request_id = v.request_id
LEFT JOIN calm AS c ON c.run_id = v.run_id
ORDER BY v.run_id, v.measured_lost_tokens DESC NULLS LAST, v.measured_engine, v.request_id;
