-- Grain: one row per event, with every column, in the engine's order. Binds: run_ids.
SELECT *
FROM measured_events
WHERE list_contains($run_ids, run_id)
ORDER BY run_id, engine, seq;
