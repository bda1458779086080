-- Grain: one row per run_id with metric samples.
-- By how much did the preemption counter rise over each run, and did the recorder see as many?
-- Null is not measured, never zero. The difference is the counter's number less the recorder's in
-- the same window; where there is none, measured_not_compared says why.
SELECT *
FROM preemption_counter_totals
ORDER BY run_id;
