-- Grain: one row per run_id, measured_engine, measured_model, measured_labels, measured_scrape: one
-- sample of the engine's own preemption counter, and how far it rose since the series' sample before.
-- The increase belongs to the window between the two, not to an instant: the counter moves when a
-- victim next emits a token. Null for a series' first sample, which has no window. After a reset it
-- is the new value: at least that, for what the counter lost is in no sample. Where several workers
-- with counters of their own answer by turns, no increase is known.
CREATE VIEW preemption_counter AS
WITH found AS (
    SELECT run_id, unnest(CAST(counter_resets AS JSON[])) AS reset
    FROM measured_runs
),
resets AS (
    SELECT DISTINCT
        run_id,
        CAST(reset ->> 'scrape' AS BIGINT) AS scrape,
        CAST(reset ->> 'engine' AS BIGINT) AS engine
    FROM found
    WHERE reset ->> 'name' = 'num_preemptions'
),
samples AS (
    SELECT
        *,
        lag(time_us) OVER series AS from_us,
        lag(value) OVER series AS before
    FROM metric_samples
    WHERE name = 'num_preemptions' AND value >= 0
    WINDOW series AS (PARTITION BY run_id, engine, model, labels ORDER BY scrape)
),
windows AS (
    SELECT
        s.*,
        coalesce(r.collection_several_workers, false) AS several_workers,
        -- A counter that was created anew and has passed its old value already did not fall.
        s.value < s.before OR (s.before IS NOT NULL AND x.run_id IS NOT NULL) AS fell
    FROM samples AS s
    JOIN measured_runs AS r ON r.run_id = s.run_id
    LEFT JOIN resets AS x
        ON x.run_id = s.run_id
        AND x.scrape = s.scrape
        AND x.engine IS NOT DISTINCT FROM s.engine
)
SELECT
    run_id,
    engine AS measured_engine,
    model AS measured_model,
    labels AS measured_labels,
    scrape AS measured_scrape,
    from_us AS measured_from_us,
    time_us AS measured_to_us,
    value AS measured_counter,
    CASE WHEN NOT several_workers THEN coalesce(fell, false) END AS measured_reset,
    CASE
        WHEN several_workers OR before IS NULL THEN NULL
        WHEN fell THEN TRY_CAST(value AS BIGINT)
        ELSE TRY_CAST(value - before AS BIGINT)
    END AS measured_preemptions
FROM windows
ORDER BY run_id, measured_engine, measured_model, measured_labels, measured_scrape;
