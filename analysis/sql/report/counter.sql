-- Grain: one row per run_id that has metric samples: preemption_counter_totals, and how complete
-- the recorder's part of the run is.
SELECT t.*, r.recorder_dropped_records, r.recorder_complete
FROM preemption_counter_totals AS t
JOIN measured_runs AS r ON r.run_id = t.run_id
ORDER BY t.run_id;
