-- Grain: one row per ledger_id, run_id, request_id that the replay preempted or flagged, worst first
-- within its ledger, `place` counting from 1; measured columns are of the same request of the run.
SELECT
    c.*,
    j.join_kind,
    j.measured_status,
    j.measured_num_preemptions,
    j.measured_ttft_us,
    j.measured_tpot_us,
    j.measured_requeue_time_us,
    row_number() OVER worst AS place,
    count(*) OVER (PARTITION BY c.ledger_id, c.run_id) AS places
FROM preemption_costs AS c
LEFT JOIN joined_requests AS j
    ON j.ledger_id = c.ledger_id
    AND j.run_id IS NOT DISTINCT FROM c.run_id
    AND j.request_id = c.request_id
WINDOW worst AS (
    PARTITION BY c.ledger_id, c.run_id
    ORDER BY
        CAST(c.modelled_flagged_wait AS INTEGER) + CAST(c.modelled_flagged_repeat AS INTEGER) DESC,
        c.modelled_preemptions DESC,
        c.modelled_queue_ticks DESC,
        c.request_id,
        j.measured_engine
)
ORDER BY c.ledger_id, c.run_id, place;
