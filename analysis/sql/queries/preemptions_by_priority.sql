-- Grain: one row per run_id, measured_priority.
-- Who was preempted most on the real engine, by priority?
-- A lower priority is more important; null is unknown. All requests are counted, whatever became of
-- them. Preemptions are null where nobody counted those of a request that reached the engine.
SELECT
    run_id,
    measured_from AS measured_priority,
    measured_requests,
    measured_ok,
    measured_preempted_requests,
    measured_preempted_requests / measured_requests AS measured_preempted_frac,
    measured_preemptions
FROM measured_groups
WHERE measured_dimension = 'priority'
ORDER BY run_id, measured_preemptions DESC NULLS LAST, measured_priority NULLS LAST;
