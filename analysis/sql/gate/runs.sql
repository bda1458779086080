-- Grain: one row per run_id that is loaded.
-- Binds: run_ids.
SELECT
    run_id,
    manifest,
    manifest_sha256,
    offered_requests,
    offered_workload_sha256,
    epoch_us(start) AS start_us
FROM measured_runs
WHERE list_contains($run_ids, run_id)
ORDER BY run_id;
