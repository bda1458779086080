-- Grain: one row per run's place and bucket of seconds; at most about most_points of a run. The
-- fullest, the most running and waiting of any engine and second in it, and its preemptions.
-- Binds: run_ids, most_points.
WITH
places AS (
    SELECT unnest($run_ids::VARCHAR[]) AS run_id, unnest(range(len($run_ids))) AS place
),

seconds AS (
    SELECT
        p.place,
        s.*,
        1 + max(s.measured_second) OVER (PARTITION BY p.place) // $most_points AS width
    FROM places AS p
    INNER JOIN pressure_seconds AS s ON p.run_id = s.run_id
)

SELECT
    place,
    width,
    measured_second // width * width AS second,
    max(measured_most_kv_cache_usage_frac) AS kv_cache_usage_frac,
    max(measured_most_running) AS running,
    max(measured_most_waiting) AS waiting,
    CAST(sum(measured_preemptions) AS BIGINT) AS preemptions
FROM seconds
GROUP BY place, width, second
ORDER BY place, second;
