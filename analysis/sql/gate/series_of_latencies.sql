-- Grain: one row per run_id that has eligible requests of the slice.
-- The latency of each request (see capped_values) in order of arrival; known leaves out what nobody
-- knows, so that it is shorter than requests where something is missing.
-- Binds: units and part (see eligible_requests), field.
SELECT
    run_id,
    count(*) AS requests,
    list(value_us ORDER BY arrival_us, request_id) FILTER (value_us IS NOT NULL) AS known
FROM capped_values($units, $part, $field)
GROUP BY run_id
ORDER BY run_id;
