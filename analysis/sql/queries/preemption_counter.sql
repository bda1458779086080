-- Grain: one row per run_id, measured_engine, measured_model, measured_labels, measured_to_us.
-- How many preemptions did the engine's own counter show between one sample and the next?
-- Without a recorder, too. The counter moves when a victim next emits a token: read windows, not
-- instants. After a reset it is at least the new value; null where several workers count apart.
SELECT
    run_id,
    measured_engine,
    measured_model,
    measured_labels,
    measured_from_us,
    measured_to_us,
    measured_counter,
    measured_reset,
    measured_preemptions
FROM preemption_counter
WHERE measured_from_us IS NOT NULL
ORDER BY run_id, measured_engine, measured_model, measured_labels, measured_to_us;
