-- Grain: one row per request, with every column, in order of arrival. Binds: run_ids.
SELECT *
FROM measured_requests
WHERE list_contains($run_ids, run_id)
ORDER BY run_id, arrival_us, request_id;
