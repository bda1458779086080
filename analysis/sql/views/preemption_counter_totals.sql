-- Grain: one row per run_id that has metric samples: by how much its preemption counter rose, and
-- what the recorder inside the engine saw in the same window. Null is not measured, never zero: a
-- run without the counter, without two samples of it, without recorded events. The difference is
-- the counter's number less the recorder's; where there is none, measured_not_compared says why.
CREATE VIEW preemption_counter_totals AS
WITH scraped AS (
    SELECT DISTINCT run_id FROM metric_samples
),
series AS (
    SELECT
        run_id,
        measured_engine AS engine,
        count(*) AS samples,
        min(measured_to_us) AS from_us,
        max(measured_to_us) AS to_us,
        bool_and(measured_reset IS NOT NULL) AS one_worker,
        count(*) FILTER (WHERE measured_reset) AS resets,
        -- An increase that no integer holds makes the whole unknown.
        CASE
            WHEN count(measured_preemptions) = count(measured_from_us)
                THEN sum(measured_preemptions)
        END AS preemptions
    FROM preemption_counter
    GROUP BY run_id, measured_engine, measured_model, measured_labels
),
counters AS (
    SELECT
        run_id,
        count(*) AS series,
        CAST(sum(samples) AS BIGINT) AS samples,
        min(from_us) AS from_us,
        max(to_us) AS to_us,
        count(DISTINCT from_us) = 1 AND count(DISTINCT to_us) = 1 AS one_window,
        bool_and(one_worker) AS one_worker,
        CAST(sum(resets) AS BIGINT) AS resets,
        CASE WHEN count(*) FILTER (WHERE samples > 1 AND preemptions IS NULL) = 0
            THEN TRY_CAST(sum(preemptions) AS BIGINT) END AS preemptions,
        list(engine) AS engines,
        bool_or(engine IS NULL) AS engine_unnamed
    FROM series
    GROUP BY run_id
),
recorded AS (
    SELECT
        e.run_id,
        min(e.time_us) AS from_us,
        max(e.time_us) AS to_us,
        count(*) FILTER (WHERE e.kind = 'preempt') AS preemptions,
        count(*) FILTER (
            WHERE e.kind = 'preempt' AND e.time_us > c.from_us AND e.time_us <= c.to_us
        ) AS within,
        bool_and(c.engine_unnamed OR list_contains(c.engines, e.engine)) AS engines_counted
    FROM measured_events AS e
    JOIN scraped AS s ON s.run_id = e.run_id
    LEFT JOIN counters AS c ON c.run_id = e.run_id
    GROUP BY e.run_id
),
compared AS (
    SELECT
        s.run_id,
        c.* EXCLUDE (run_id),
        e.from_us AS events_from_us,
        e.to_us AS events_to_us,
        e.preemptions AS recorded,
        CASE WHEN c.run_id IS NOT NULL THEN e.within END AS within,
        CASE
            WHEN c.run_id IS NULL THEN 'no counter on any page'
            WHEN NOT c.one_worker THEN 'several workers count apart'
            WHEN c.preemptions IS NULL THEN 'fewer than two samples'
            WHEN e.run_id IS NULL THEN 'no recorder'
            WHEN c.resets > 0 THEN 'the counter was reset'
            WHEN NOT c.one_window THEN 'series of different windows'
            WHEN NOT e.engines_counted THEN 'engines without a series'
        END AS not_compared
    FROM scraped AS s
    LEFT JOIN counters AS c ON c.run_id = s.run_id
    LEFT JOIN recorded AS e ON e.run_id = s.run_id
)
SELECT
    run_id,
    series AS measured_series,
    samples AS measured_samples,
    from_us AS measured_from_us,
    to_us AS measured_to_us,
    preemptions AS measured_counter_preemptions,
    CASE WHEN one_worker THEN resets END AS measured_resets,
    events_from_us AS measured_events_from_us,
    events_to_us AS measured_events_to_us,
    recorded AS measured_preempt_events,
    within AS measured_preempt_events_in_window,
    CASE WHEN not_compared IS NULL THEN preemptions - within END AS measured_difference,
    not_compared AS measured_not_compared
FROM compared
ORDER BY run_id;
