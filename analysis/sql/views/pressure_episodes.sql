-- Grain: one row per run_id, measured_source, measured_engine, measured_model, measured_labels,
-- measured_episode, unordered: preemptions less than 5 s after each other, by the recorder
-- (measured_source recorder: instants) or by the engine's own counter (counter: windows between two
-- scrapes). An episode began between measured_start_from_us and measured_start_to_us: one instant
-- for the recorder; for the counter, which moves when a victim next emits a token, it may have
-- begun even earlier, and not later. After measured_end_us nothing was seen for 5 s.
CREATE VIEW pressure_episodes AS
WITH moments AS (
    -- Five seconds at a time first: no episode ends within them, and there are far fewer.
    SELECT
        run_id,
        'recorder' AS source,
        engine,
        CAST(NULL AS VARCHAR) AS model,
        CAST(NULL AS VARCHAR) AS labels,
        min(time_us) AS from_us,
        min(time_us) AS first_us,
        max(time_us) AS to_us,
        count(*) AS preemptions,
        max(waiting) AS waiting
    FROM measured_events
    WHERE kind = 'preempt'
    GROUP BY run_id, engine, time_us // 5000000
    UNION ALL BY NAME
    SELECT
        run_id,
        'counter' AS source,
        measured_engine AS engine,
        measured_model AS model,
        CAST(measured_labels AS VARCHAR) AS labels,
        measured_counter_from_us AS from_us,
        measured_to_us AS first_us,
        measured_to_us AS to_us,
        measured_preemptions AS preemptions,
        greatest(measured_waiting_before, measured_waiting) AS waiting
    FROM pressure_windows
    WHERE measured_preemptions > 0
),
gaps AS (
    SELECT *, coalesce(from_us - lag(to_us) OVER series > 5000000, true) AS begins
    FROM moments
    WINDOW series AS (PARTITION BY run_id, source, engine, model, labels ORDER BY to_us)
),
numbered AS (
    -- A sum, because DuckDB counts with a FILTER over a window in quadratic time.
    SELECT *, CAST(sum(CAST(begins AS INTEGER)) OVER series AS BIGINT) AS episode
    FROM gaps
    WINDOW series AS (PARTITION BY run_id, source, engine, model, labels ORDER BY to_us)
)
SELECT
    run_id,
    source AS measured_source,
    engine AS measured_engine,
    model AS measured_model,
    labels AS measured_labels,
    episode AS measured_episode,
    min(from_us) AS measured_start_from_us,
    min(first_us) AS measured_start_to_us,
    max(to_us) AS measured_end_us,
    CAST(sum(preemptions) AS BIGINT) AS measured_preemptions,
    max(waiting) AS measured_most_waiting
FROM numbered
GROUP BY run_id, source, engine, model, labels, episode;
