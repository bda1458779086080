-- Grain: one row per slice, scope, metric (ttft, e2e), preemptions (0, 1, or 2 for 2 and more) and
-- point: an empirical distribution of at most about most_points points, thinned by rank, its last point
-- kept. share is that of the eligible requests of the group whose value is at most value_us; what
-- failed or never came counts as in page/numbers. requests are those of the curve.
-- Binds: as page/numbers, without max_preemptions and wait_limit_us, and most_points.
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
        CASE WHEN $follow_up_us > 0 THEN $follow_up_us ELSE 'infinity'::DOUBLE END AS cap
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
),

each AS (
    SELECT
        slice,
        scope,
        least(num_preemptions, 2) AS preemptions,
        unnest([
            {'metric': 'ttft', 'value_us': ttft_capped},
            {'metric': 'e2e', 'value_us': e2e_capped}
        ], recursive := true)
    FROM scoped
    WHERE eligible AND num_preemptions IS NOT NULL
),

ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY slice, scope, metric, preemptions ORDER BY value_us
        ) AS place,
        count(*) OVER (PARTITION BY slice, scope, metric, preemptions) AS requests
    FROM each
    WHERE value_us IS NOT NULL
)

SELECT
    slice,
    scope,
    metric,
    preemptions,
    value_us,
    max(place / requests) AS share,
    any_value(requests) AS requests
FROM ranked
WHERE
    isfinite(value_us)
    AND (place IN (1, requests) OR place * $most_points // requests != (place - 1) * $most_points // requests)
GROUP BY slice, scope, metric, preemptions, value_us
ORDER BY slice, scope, metric, preemptions, value_us;
