-- Grain: one row per run_id, measured_engine, measured_model, measured_labels, measured_name,
-- measured_le, measured_scrape, unordered: by how much a cumulative bucket of a histogram rose
-- since its sample before. Null for the first sample, which has no window. A histogram is reset as
-- a whole: if any of its buckets fell, or the collector saw it begin anew, every bucket's increase
-- is its new value, which is at least what came in. Where several workers answer by turns, no
-- increase is known.
CREATE VIEW histogram_increases AS
WITH found AS (
    SELECT run_id, unnest(CAST(counter_resets AS JSON[])) AS reset
    FROM measured_runs
),
resets AS (
    SELECT DISTINCT
        run_id,
        CAST(reset ->> 'scrape' AS BIGINT) AS scrape,
        CAST(reset ->> 'engine' AS BIGINT) AS engine,
        regexp_replace(reset ->> 'name', '_(bucket|count|sum)$', '') AS name
    FROM found
),
samples AS (
    SELECT
        run_id,
        engine,
        model,
        labels,
        regexp_replace(name, '_bucket$', '') AS name,
        le,
        scrape,
        time_us,
        value,
        lag(time_us) OVER series AS from_us,
        lag(value) OVER series AS before
    FROM metric_samples
    WHERE suffix(name, '_bucket') AND le IS NOT NULL AND value >= 0
    WINDOW series AS (PARTITION BY run_id, engine, model, labels, name, le ORDER BY scrape)
),
histograms AS (
    SELECT run_id, engine, model, labels, name, scrape, bool_or(value < before) AS fell
    FROM samples
    WHERE before IS NOT NULL
    GROUP BY run_id, engine, model, labels, name, scrape
)
SELECT
    s.run_id,
    s.engine AS measured_engine,
    s.model AS measured_model,
    s.labels AS measured_labels,
    s.name AS measured_name,
    s.le AS measured_le,
    s.scrape AS measured_scrape,
    s.from_us AS measured_from_us,
    s.time_us AS measured_to_us,
    CASE
        WHEN NOT coalesce(r.collection_several_workers, false)
            THEN s.before IS NOT NULL AND (h.fell OR x.run_id IS NOT NULL)
    END AS measured_reset,
    CASE
        WHEN coalesce(r.collection_several_workers, false) OR s.before IS NULL THEN NULL
        WHEN h.fell OR x.run_id IS NOT NULL THEN TRY_CAST(s.value AS BIGINT)
        ELSE TRY_CAST(s.value - s.before AS BIGINT)
    END AS measured_increase
FROM samples AS s
JOIN measured_runs AS r ON r.run_id = s.run_id
LEFT JOIN histograms AS h
    ON h.run_id = s.run_id
    AND h.engine IS NOT DISTINCT FROM s.engine
    AND h.model IS NOT DISTINCT FROM s.model
    AND h.labels = s.labels
    AND h.name = s.name
    AND h.scrape = s.scrape
LEFT JOIN resets AS x
    ON x.run_id = s.run_id
    AND x.scrape = s.scrape
    AND x.engine IS NOT DISTINCT FROM s.engine
    AND x.name = s.name;
