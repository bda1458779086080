-- Grain: one row per run_id and number of preemptions: what being displaced more often goes with.
-- Only requests that ended well have latencies; requests counts all of them.
SELECT
    run_id,
    num_preemptions AS measured_num_preemptions,
    count(*) AS measured_requests,
    count(*) FILTER (WHERE status = 'ok') AS measured_ok,
    quantile_cont(ttft_us, 0.5) FILTER (WHERE status = 'ok') AS measured_ttft_us_p50,
    quantile_cont(tpot_us, 0.5) FILTER (WHERE status = 'ok') AS measured_tpot_us_p50,
    quantile_cont(requeue_time_us, 0.5) FILTER (WHERE status = 'ok') AS measured_requeue_time_us_p50
FROM measured_requests
GROUP BY run_id, num_preemptions
ORDER BY run_id, num_preemptions NULLS LAST;
