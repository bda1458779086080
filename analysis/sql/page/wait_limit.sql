-- Grain: one row. The 99th percentile of a baseline request's waiting, first wait and re-entries
-- together; null where no baseline request has one.
-- Binds: run_ids (the baseline's).
SELECT quantile_disc(queue_time_us + coalesce(requeue_time_us, 0), 0.99) AS wait_us
FROM measured_requests
WHERE list_contains($run_ids, run_id)
ORDER BY ALL;
