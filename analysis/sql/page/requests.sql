-- Grain: one row per run's place and request, at most most_rows: of those that are marked (waited
-- too long, preempted too often) up to half as many, then of the others; both by a hash of their id.
-- slices are the places of the slices a request is in. total counts all requests.
-- Binds: run_ids, sides (one order), the bounds of each slice as one list element,
-- max_preemptions, wait_limit_us, most_rows.
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
        r.queue_time_us + coalesce(r.requeue_time_us, 0) AS wait_us
    FROM places AS p
    INNER JOIN measured_requests AS r ON p.run_id = r.run_id
),

signed AS (
    SELECT
        *,
        coalesce(wait_us > $wait_limit_us, false) AS waited,
        coalesce(num_preemptions > $max_preemptions, false) AS repeated
    FROM requests
),

marked AS (
    SELECT *
    FROM signed
    WHERE waited OR repeated
    ORDER BY md5(request_id), request_id, place, engine
    LIMIT $most_rows // 2
),

others AS (
    SELECT *
    FROM signed
    WHERE NOT waited AND NOT repeated
    ORDER BY md5(request_id), request_id, place, engine
    LIMIT $most_rows - (SELECT count(*) FROM marked)
),

chosen AS (
    SELECT * FROM marked
    UNION ALL
    SELECT * FROM others
)

SELECT
    v.place,
    v.request_id,
    v.status,
    v.arrival_us,
    v.wait_us,
    v.num_preemptions,
    v.prompt_tokens,
    v.generated_tokens,
    v.ttft_us,
    v.e2e_us,
    v.waited,
    v.repeated,
    list(s.slice ORDER BY s.slice) AS slices,
    (SELECT count(*) FROM requests) AS total
FROM chosen AS v
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
GROUP BY ALL
ORDER BY v.place, v.arrival_us, v.request_id, v.status;
