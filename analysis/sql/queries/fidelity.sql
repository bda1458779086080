-- Grain: one row per ledger_id, run_id, metric.
-- How far is each replay from the run it describes? Only replays of the very engine, configuration
-- and workload that were measured have rows (fidelity_scores); a what-if describes no run.
SELECT
    ledger_id,
    run_id,
    fidelity_level,
    metric,
    requests,
    modelled_value,
    measured_value,
    error_frac
FROM fidelity_scores
ORDER BY ledger_id, run_id, metric;
