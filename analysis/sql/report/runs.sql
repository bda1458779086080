-- Grain: one row per run_id. Which engine each run is of, and what it measured: requests that
-- ended well only have latencies, so their number stands beside every quantile.
WITH events AS (
    SELECT run_id, count(*) FILTER (WHERE kind = 'preempt') AS preempts, count(*) AS events
    FROM measured_events
    GROUP BY run_id
),
requests AS (
    SELECT
        run_id,
        count(*) AS requests,
        count(*) FILTER (WHERE status = 'ok') AS ok,
        -- A sum over what is known would show an uncounted request as never preempted.
        CASE
            WHEN
                count(*) FILTER (
                    WHERE num_preemptions IS NULL AND status NOT IN ('unsent', 'rejected')
                ) = 0
                THEN sum(num_preemptions)
        END AS preemptions,
        quantile_cont(ttft_us, [0.5, 0.95]) FILTER (WHERE status = 'ok') AS ttft_us,
        quantile_cont(tpot_us, [0.5, 0.95]) FILTER (WHERE status = 'ok') AS tpot_us,
        quantile_cont(queue_time_us, 0.95) FILTER (WHERE status = 'ok') AS queue_time_us_p95,
        quantile_cont(requeue_time_us, 0.95) FILTER (WHERE status = 'ok') AS requeue_time_us_p95
    FROM measured_requests
    GROUP BY run_id
)
SELECT
    r.run_id,
    r.engine_name,
    r.engine_version,
    r.device_kind,
    r.device_name,
    r.model_name,
    r.cache_capacity_blocks,
    r.cache_block_size,
    r.scheduler_scheduling_policy,
    r.kind,
    r.driver_behind,
    r.driver_late_requests,
    r.driver_lateness_limit_us,
    r.driver_max_lateness_us,
    r.driver_concurrency,
    r.imported_format,
    r.imported_definitions_ttft,
    r.imported_definitions_tpot,
    r.imported_definitions_e2e,
    CAST(r.imported_left_out AS MAP (VARCHAR, BIGINT)) AS imported_left_out,
    r.offered_requests,
    q.requests AS measured_requests,
    q.ok AS measured_ok,
    q.preemptions AS measured_preemptions,
    -- No event at all means that nobody recorded them, which is not the same as no preemption.
    e.preempts AS measured_preempt_events,
    q.ttft_us[1] AS measured_ttft_us_p50,
    q.ttft_us[2] AS measured_ttft_us_p95,
    q.tpot_us[1] AS measured_tpot_us_p50,
    q.tpot_us[2] AS measured_tpot_us_p95,
    q.queue_time_us_p95 AS measured_queue_time_us_p95,
    q.requeue_time_us_p95 AS measured_requeue_time_us_p95
FROM measured_runs AS r
LEFT JOIN requests AS q ON q.run_id = r.run_id
LEFT JOIN events AS e ON e.run_id = r.run_id
ORDER BY r.run_id;
