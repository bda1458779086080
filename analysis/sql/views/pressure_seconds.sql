-- Grain: one row per run_id, measured_engine, measured_second in which the recorder saw a step or a
-- preemption, unordered: how full the KV cache was at most, the most running and waiting requests,
-- and the preemptions of that second. Seconds count from the run's start.
CREATE VIEW pressure_seconds AS
WITH steps AS (
    SELECT
        run_id,
        engine,
        time_us // 1000000 AS second,
        count(*) AS steps,
        min(free_blocks) AS free_blocks,
        max(running) AS running,
        max(waiting) AS waiting
    FROM measured_steps
    GROUP BY ALL
),
preemptions AS (
    SELECT
        run_id,
        engine,
        time_us // 1000000 AS second,
        count(*) AS preemptions,
        count(DISTINCT request_id) AS victims
    FROM measured_events
    WHERE kind = 'preempt'
    GROUP BY ALL
),
recorded AS (
    SELECT DISTINCT run_id, engine FROM measured_events
),
seconds AS (
    SELECT * FROM steps FULL JOIN preemptions USING (run_id, engine, second)
)
SELECT
    s.run_id,
    s.engine AS measured_engine,
    s.second AS measured_second,
    s.steps AS measured_steps,
    s.free_blocks AS measured_least_free_blocks,
    1 - s.free_blocks / nullif(r.cache_capacity_blocks, 0) AS measured_most_kv_cache_usage_frac,
    s.running AS measured_most_running,
    s.waiting AS measured_most_waiting,
    -- Steps without any event mean that nobody recorded events, not that none was preempted.
    CASE WHEN e.run_id IS NOT NULL THEN coalesce(s.preemptions, 0) END AS measured_preemptions,
    CASE WHEN e.run_id IS NOT NULL THEN coalesce(s.victims, 0) END AS measured_victims
FROM seconds AS s
JOIN measured_runs AS r ON r.run_id = s.run_id
LEFT JOIN recorded AS e ON e.run_id = s.run_id AND e.engine = s.engine;
