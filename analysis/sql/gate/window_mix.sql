-- Grain: one row per window (pair, from 0) and length (prompt_tokens, output_tokens).
-- How far apart the two sides' distributions of it are, by Kolmogorov and Smirnov: the greatest
-- difference of the shares of requests that are no longer than some number of tokens. It is
-- apart / (baseline * candidate), exact as a fraction; null where a side has no request.
-- Outputs are of ok requests: what the others would have generated nobody knows, and how many they
-- are is judged elsewhere. unknown counts requests without a length.
-- Binds: units and part (see eligible_requests).
WITH
places AS (
    SELECT DISTINCT unnest(
        list_transform($units, lambda x: {'unit': x.unit, 'pair': x.pair, 'side': x.side}),
        recursive := true
    )
),

lengths AS (
    SELECT
        p.pair,
        p.side,
        r.status,
        unnest([
            {'length': 'prompt_tokens', 'tokens': r.prompt_tokens},
            {'length': 'output_tokens', 'tokens': r.generated_tokens}
        ], recursive := true)
    FROM eligible_requests($units, $part) AS r
    INNER JOIN places AS p ON r.run_id = p.unit
),

counted AS (
    SELECT
        pair,
        length,
        tokens,
        count(*) FILTER (side = 'baseline') AS baseline,
        count(*) FILTER (side = 'candidate') AS candidate
    FROM lengths
    WHERE length = 'prompt_tokens' OR status = 'ok'
    GROUP BY pair, length, tokens
),

reached AS (
    SELECT
        pair,
        length,
        tokens,
        sum(baseline) OVER so_far AS baseline_so_far,
        sum(candidate) OVER so_far AS candidate_so_far,
        sum(baseline) OVER whole AS baseline,
        sum(candidate) OVER whole AS candidate
    FROM counted
    WHERE tokens IS NOT NULL
    WINDOW
        so_far AS (PARTITION BY pair, length ORDER BY tokens),
        whole AS (PARTITION BY pair, length)
),

apart AS (
    SELECT
        pair,
        length,
        any_value(baseline) AS baseline,
        any_value(candidate) AS candidate,
        max(abs(baseline_so_far * candidate - candidate_so_far * baseline)) AS apart
    FROM reached
    GROUP BY pair, length
),

unknown AS (
    SELECT
        pair,
        length,
        coalesce(sum(baseline + candidate) FILTER (tokens IS NULL), 0) AS unknown
    FROM counted
    GROUP BY pair, length
)

SELECT
    u.pair,
    u.length,
    u.unknown::BIGINT AS unknown,
    coalesce(a.baseline, 0)::BIGINT AS baseline,
    coalesce(a.candidate, 0)::BIGINT AS candidate,
    CASE WHEN a.baseline > 0 AND a.candidate > 0 THEN a.apart::HUGEINT END AS apart
FROM unknown AS u
LEFT JOIN apart AS a ON u.pair = a.pair AND u.length = a.length
ORDER BY u.pair, u.length;
