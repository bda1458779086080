-- Grain: one row per run_id, measured_from.
-- Which prompt sizes are preempted on the real engine?
-- A group is measured_from to measured_to prompt tokens; all its requests are counted, whatever
-- became of them. Preemptions are null where nobody counted those of a request that reached the
-- engine.
SELECT
    run_id,
    measured_from,
    measured_to,
    measured_requests,
    measured_ok,
    measured_preempted_requests,
    measured_preempted_requests / measured_requests AS measured_preempted_frac,
    measured_preemptions
FROM measured_groups
WHERE measured_dimension = 'prompt_tokens'
ORDER BY run_id, measured_from;
