-- Grain: one row per run_id that has measured requests.
-- How often requests were preempted. Requests that never reached the engine are left out: they
-- could not be preempted and say nothing.
-- Binds: run_ids.
SELECT
    run_id,
    count(*) FILTER (status NOT IN ('unsent', 'rejected')) AS reached,
    count(num_preemptions) FILTER (status NOT IN ('unsent', 'rejected')) AS known,
    max(num_preemptions) AS greatest
FROM measured_requests
WHERE list_contains($run_ids, run_id)
GROUP BY run_id
ORDER BY run_id;
