-- Grain: one row per run_id with a known end of observation.
-- Eligible requests of one slice.
-- Binds: run_ids, warmup_us, follow_up_us, part (see eligible_requests).
SELECT
    m.run_id,
    count(r.request_id) AS eligible
FROM measured_runs AS m
LEFT JOIN eligible_requests($run_ids, $warmup_us, $follow_up_us, $part) AS r
    ON m.run_id = r.run_id
WHERE list_contains($run_ids, m.run_id) AND m.drain_end_us IS NOT NULL
GROUP BY m.run_id
ORDER BY m.run_id;
