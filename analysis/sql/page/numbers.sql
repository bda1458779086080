-- Grain: one row, none where there is no request. What a reader sees of some runs' requests in a
-- slice: what became of them, how often they were preempted, who was marked, and latencies as in
-- page/scope_requests. One scope a time: quantiles hold all of their values in memory.
-- Binds: run_ids, part, warmup_us, follow_up_us, max_preemptions, wait_limit_us.
WITH requests AS (
    SELECT
        *,
        num_preemptions IS NULL AND status NOT IN ('unsent', 'rejected') AS uncounted
    FROM scope_requests($run_ids::VARCHAR[], $part, $warmup_us, $follow_up_us)
)

SELECT
    count(*) AS requests,
    count(*) FILTER (eligible) AS eligible,
    count(*) FILTER (status = 'ok') AS ok,
    count(*) FILTER (status = 'error') AS error,
    count(*) FILTER (status = 'aborted') AS aborted,
    count(*) FILTER (status = 'censored') AS censored,
    count(*) FILTER (status = 'unsent') AS unsent,
    count(*) FILTER (status = 'rejected') AS rejected,
    -- One request that reached the engine and that nobody counted makes these unknown.
    CASE WHEN count(*) FILTER (uncounted) = 0 THEN count(*) FILTER (num_preemptions > 0) END
        AS preempted,
    CASE WHEN count(*) FILTER (uncounted) = 0 THEN CAST(sum(num_preemptions) AS BIGINT) END
        AS preemptions,
    CASE WHEN count(wait_us) > 0 THEN count(*) FILTER (wait_us > $wait_limit_us) END
        AS waited_too_long,
    CASE WHEN count(*) FILTER (uncounted) = 0 THEN count(*) FILTER (num_preemptions > $max_preemptions) END
        AS preempted_too_often,
    CASE
        WHEN isfinite(max(ttft_capped)) THEN quantile_cont(ttft_capped, 0.5)
        ELSE quantile_disc(ttft_capped, 0.5)
    END AS ttft_p50_us,
    CASE
        WHEN isfinite(max(ttft_capped)) THEN quantile_cont(ttft_capped, 0.95)
        ELSE quantile_disc(ttft_capped, 0.95)
    END AS ttft_p95_us,
    CASE
        WHEN isfinite(max(e2e_capped)) THEN quantile_cont(e2e_capped, 0.5)
        ELSE quantile_disc(e2e_capped, 0.5)
    END AS e2e_p50_us,
    CASE
        WHEN isfinite(max(e2e_capped)) THEN quantile_cont(e2e_capped, 0.95)
        ELSE quantile_disc(e2e_capped, 0.95)
    END AS e2e_p95_us
FROM requests
HAVING count(*) > 0
ORDER BY ALL;
