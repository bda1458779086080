-- Grain: one row per ledger_id, run_id, metric.
-- How far is each replay from the run it describes? Only replays of the very engine, configuration
-- and workload that were measured have rows (fidelity_scores); a what-if describes no run.
SELECT *
FROM fidelity_scores
ORDER BY ledger_id, run_id, metric;
