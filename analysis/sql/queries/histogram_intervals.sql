-- Grain: one row per run_id, measured_model, measured_labels, measured_name, measured_quantile.
-- What TTFT do the engine's own histograms allow at p95, and what of all else that they count?
-- An interval of bucket bounds, of what came in between the first sample and the last; no recorder
-- is needed. The value lies above measured_lower and at most at measured_upper, in the metric's
-- unit (seconds where its name says so); no point inside is likelier than another.
SELECT *
FROM histogram_intervals
ORDER BY run_id, measured_name, measured_model, measured_labels, measured_quantile;
