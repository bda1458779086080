-- Grain: one row per run_id, measured_model, measured_labels, measured_name, measured_quantile
-- (0.5, 0.9, 0.95, 0.99), unordered: the interval that a histogram allows for a quantile of what it
-- counted between its first sample and its last. The value lies above measured_lower and at most at
-- measured_upper, in the metric's unit, and no point inside is likelier than another. 0 is the
-- lower end of the first bucket; Infinity is the upper end of the last. Both ranks that quantile_cont
-- interpolates between are in it. Null without an observation, and where engines of a run have
-- different buckets.
CREATE VIEW histogram_intervals AS
WITH totals AS MATERIALIZED (
    SELECT * FROM histogram_totals
),
histograms AS (
    SELECT
        run_id,
        measured_model,
        measured_labels,
        measured_name,
        min(measured_engines) AS engines,
        max(measured_engines) AS most_engines,
        min(measured_from_us) AS from_us,
        max(measured_to_us) AS to_us,
        max(measured_resets) AS resets,
        count(*) = count(measured_increase) AS known,
        max(measured_increase) FILTER (WHERE isinf(measured_le)) AS observations
    FROM totals
    GROUP BY run_id, measured_model, measured_labels, measured_name
),
ranks AS (
    SELECT
        h.*,
        q.quantile,
        CASE
            WHEN h.known AND h.engines = h.most_engines AND h.observations > 0
                THEN h.observations
        END AS n,
        floor(q.quantile * (n - 1)) + 1 AS low,
        ceil(q.quantile * (n - 1)) + 1 AS high
    FROM histograms AS h
    CROSS JOIN (VALUES (0.50), (0.90), (0.95), (0.99)) AS q (quantile)
)
SELECT
    r.run_id,
    r.measured_model,
    r.measured_labels,
    r.measured_name,
    CAST(r.quantile AS DOUBLE) AS measured_quantile,
    r.most_engines AS measured_engines,
    r.from_us AS measured_from_us,
    r.to_us AS measured_to_us,
    r.resets AS measured_resets,
    r.observations AS measured_observations,
    CASE
        WHEN r.n IS NOT NULL
            THEN coalesce(max(t.measured_le) FILTER (WHERE t.measured_increase < r.low), 0)
    END AS measured_lower,
    min(t.measured_le) FILTER (WHERE t.measured_increase >= r.high) AS measured_upper
FROM ranks AS r
JOIN totals AS t
    ON t.run_id = r.run_id
    AND t.measured_model IS NOT DISTINCT FROM r.measured_model
    AND t.measured_labels = r.measured_labels
    AND t.measured_name = r.measured_name
GROUP BY
    r.run_id,
    r.measured_model,
    r.measured_labels,
    r.measured_name,
    r.quantile,
    r.most_engines,
    r.from_us,
    r.to_us,
    r.resets,
    r.observations,
    r.n,
    r.low,
    r.high;
