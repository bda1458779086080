-- Grain: one row per ledger_id, run_id, metric, at most most_rows: how far a replay of one of these
-- runs is from it.
-- Binds: run_ids, most_rows.
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
WHERE list_contains($run_ids, run_id)
ORDER BY ledger_id, run_id, metric
LIMIT $most_rows;
