-- Grain: one row per run_id that is loaded, with every column. Binds: run_ids.
SELECT *
FROM measured_runs
WHERE list_contains($run_ids, run_id)
ORDER BY run_id;
