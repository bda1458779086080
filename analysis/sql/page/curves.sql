-- Grain: one row per metric (ttft, e2e), preemptions (0, 1, or 2 for 2 and more) and point, of some
-- runs' requests in a slice: an empirical distribution of at most about most_points points, thinned
-- by rank, its last point kept. share is that of the eligible requests of the group whose value is at
-- most value_us; what failed or never came counts as in page/scope_requests. requests are those of
-- the curve.
-- Binds: run_ids, part, warmup_us, follow_up_us, most_points.
WITH each AS (
    SELECT
        least(num_preemptions, 2) AS preemptions,
        unnest([
            {'metric': 'ttft', 'value_us': ttft_capped},
            {'metric': 'e2e', 'value_us': e2e_capped}
        ], recursive := true)
    FROM scope_requests($run_ids::VARCHAR[], $part, $warmup_us, $follow_up_us)
    WHERE eligible AND num_preemptions IS NOT NULL
),

ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY metric, preemptions ORDER BY value_us
        ) AS place,
        count(*) OVER (PARTITION BY metric, preemptions) AS requests
    FROM each
    WHERE value_us IS NOT NULL
)

SELECT
    metric,
    preemptions,
    value_us,
    max(place / requests) AS share,
    any_value(requests) AS requests
FROM ranked
WHERE
    isfinite(value_us)
    AND (place IN (1, requests) OR place * $most_points // requests != (place - 1) * $most_points // requests)
GROUP BY metric, preemptions, value_us
ORDER BY metric, preemptions, value_us;
