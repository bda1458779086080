-- Grain: one row per run_id, measured_engine, measured_model, measured_labels, measured_to_us.
-- Which windows between two scrapes had preemptions, and what was KV usage before?
-- The counter moves when a victim next emits a token: the preemption lies in this window or an
-- earlier one. KV-cache usage, running and waiting requests are those of the scrape that begins the
-- window; measured_counter_from_us is where the counter's own window begins.
SELECT *
FROM pressure_windows
WHERE measured_preemptions > 0
ORDER BY run_id, measured_engine, measured_model, measured_labels, measured_to_us;
