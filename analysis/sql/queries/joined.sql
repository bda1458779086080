-- Grain: one row per ledger_id, run_id, request_id (and measured_engine).
-- What did the replay and the real engine do with the same request? join_kind says whether like is
-- compared with like (fidelity) or not (what-if), join_differences in which fields.
SELECT *
FROM joined_requests
ORDER BY ledger_id, run_id, request_id, measured_engine;
