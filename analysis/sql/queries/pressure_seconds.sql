-- Grain: one row per run_id, measured_engine, measured_second.
-- How full was the KV cache in each second, and how many ran, waited and were preempted?
-- On the real engine, from the recorder's steps and events. Preemptions are null where nobody
-- recorded events.
SELECT *
FROM pressure_seconds
ORDER BY run_id, measured_engine, measured_second;
