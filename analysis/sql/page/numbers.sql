-- Grain: one row per slice (its place in the binds, from 0) and scope: a side's name, or a run's
-- place among the runs. What a reader sees of each part of the traffic: what became of the
-- requests, how often they were preempted, who was marked, and latencies capped at follow_up_us
-- over the eligible requests. What failed or never came counts as follow_up_us, or as infinite
-- where no follow-up is planned. An ok request without a time has none.
-- Binds: run_ids, sides (one order), slice conditions as in slice_eligible, one list element per
-- slice, warmup_us, follow_up_us, max_preemptions, wait_limit_us.
WITH
places AS (
    SELECT
        unnest($run_ids::VARCHAR[]) AS run_id,
        unnest($sides::VARCHAR[]) AS side,
        unnest(range(len($run_ids))) AS place
),

slices AS (
    SELECT
        unnest(range(len($priority_min))) AS slice,
        unnest($priority_min::BIGINT[]) AS priority_min,
        unnest($priority_max::BIGINT[]) AS priority_max,
        unnest($prompt_tokens_min::BIGINT[]) AS prompt_tokens_min,
        unnest($prompt_tokens_max::BIGINT[]) AS prompt_tokens_max,
        unnest($max_tokens_min::BIGINT[]) AS max_tokens_min,
        unnest($max_tokens_max::BIGINT[]) AS max_tokens_max,
        unnest($arrival_us_min::BIGINT[]) AS arrival_us_min,
        unnest($arrival_us_max::BIGINT[]) AS arrival_us_max,
        unnest($tenants::VARCHAR[][]) AS tenants
),

requests AS (
    SELECT
        p.place,
        p.side,
        r.*,
        coalesce(
            r.arrival_us >= $warmup_us AND r.arrival_us <= m.drain_end_us - $follow_up_us, false
        ) AS eligible,
        CASE WHEN $follow_up_us > 0 THEN $follow_up_us ELSE 'infinity'::DOUBLE END AS cap,
        r.queue_time_us + coalesce(r.requeue_time_us, 0) AS wait_us,
        r.num_preemptions IS NULL AND r.status NOT IN ('unsent', 'rejected') AS uncounted
    FROM places AS p
    INNER JOIN measured_runs AS m ON p.run_id = m.run_id
    INNER JOIN measured_requests AS r ON p.run_id = r.run_id
),

valued AS (
    SELECT
        *,
        CASE
            WHEN NOT eligible THEN NULL
            WHEN status IN ('error', 'aborted', 'rejected', 'unsent') THEN cap
            WHEN ttft_us IS NOT NULL THEN least(ttft_us, cap)
            WHEN status = 'censored' THEN cap
        END AS ttft_capped,
        CASE
            WHEN NOT eligible THEN NULL
            WHEN status != 'ok' THEN cap
            WHEN e2e_us IS NOT NULL THEN least(e2e_us, cap)
        END AS e2e_capped
    FROM requests
),

scoped AS (
    SELECT
        s.slice,
        unnest([v.side, v.place::VARCHAR]) AS scope,
        v.*
    FROM valued AS v
    INNER JOIN slices AS s
        ON
            (s.priority_min IS NULL OR v.priority >= s.priority_min)
            AND (s.priority_max IS NULL OR v.priority <= s.priority_max)
            AND (s.prompt_tokens_min IS NULL OR v.prompt_tokens >= s.prompt_tokens_min)
            AND (s.prompt_tokens_max IS NULL OR v.prompt_tokens <= s.prompt_tokens_max)
            AND (s.max_tokens_min IS NULL OR v.max_tokens >= s.max_tokens_min)
            AND (s.max_tokens_max IS NULL OR v.max_tokens <= s.max_tokens_max)
            AND (s.arrival_us_min IS NULL OR v.arrival_us >= s.arrival_us_min)
            AND (s.arrival_us_max IS NULL OR v.arrival_us <= s.arrival_us_max)
            AND (s.tenants IS NULL OR list_contains(s.tenants, v.tenant))
)

SELECT
    slice,
    scope,
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
FROM scoped
GROUP BY slice, scope
ORDER BY slice, scope;
