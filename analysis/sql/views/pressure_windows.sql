-- Grain: one row per run_id, measured_engine, measured_model, measured_labels, measured_to_us,
-- unordered: one window between two scrapes of an engine's metrics: KV-cache usage, running and
-- waiting requests at its begin and at its end, and by how much the preemption counter rose in it.
-- The counter moves when a victim next emits a token, so a preemption can lie before the window
-- that shows it, and never after.
CREATE VIEW pressure_windows AS
WITH scrapes AS (
    SELECT
        run_id,
        engine,
        model,
        labels,
        scrape,
        min(time_us) AS time_us,
        max(value) FILTER (WHERE name = 'kv_cache_usage_frac') AS usage_frac,
        max(value) FILTER (WHERE name = 'num_requests_running') AS running,
        max(value) FILTER (WHERE name = 'num_requests_waiting') AS waiting
    FROM metric_samples
    WHERE
        name IN (
            'kv_cache_usage_frac', 'num_requests_running', 'num_requests_waiting', 'num_preemptions'
        )
    GROUP BY run_id, engine, model, labels, scrape
),
windows AS (
    SELECT
        *,
        lag(time_us) OVER series AS from_us,
        lag(usage_frac) OVER series AS usage_before_frac,
        lag(running) OVER series AS running_before,
        lag(waiting) OVER series AS waiting_before
    FROM scrapes
    WINDOW series AS (PARTITION BY run_id, engine, model, labels ORDER BY scrape)
)
SELECT
    w.run_id,
    w.engine AS measured_engine,
    w.model AS measured_model,
    w.labels AS measured_labels,
    w.from_us AS measured_from_us,
    w.time_us AS measured_to_us,
    w.usage_before_frac AS measured_kv_cache_usage_before_frac,
    w.usage_frac AS measured_kv_cache_usage_frac,
    TRY_CAST(w.running_before AS BIGINT) AS measured_running_before,
    TRY_CAST(w.running AS BIGINT) AS measured_running,
    TRY_CAST(w.waiting_before AS BIGINT) AS measured_waiting_before,
    TRY_CAST(w.waiting AS BIGINT) AS measured_waiting,
    c.measured_reset,
    c.measured_from_us AS measured_counter_from_us,
    c.measured_preemptions
FROM windows AS w
LEFT JOIN preemption_counter AS c
    ON c.run_id = w.run_id
    AND c.measured_engine IS NOT DISTINCT FROM w.engine
    AND c.measured_model IS NOT DISTINCT FROM w.model
    AND c.measured_labels = w.labels
    AND c.measured_scrape = w.scrape
WHERE w.from_us IS NOT NULL;
