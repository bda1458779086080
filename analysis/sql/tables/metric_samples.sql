-- Grain: one row per run_id, scrape, engine, model, name, labels, le: the engine's own metrics.
CREATE TABLE metric_samples (
    run_id VARCHAR NOT NULL,
    scrape BIGINT NOT NULL,
    time_us BIGINT NOT NULL,
    engine BIGINT,
    model VARCHAR,
    name VARCHAR NOT NULL,
    labels JSON NOT NULL,
    le DOUBLE,
    value DOUBLE
);
COMMENT ON TABLE metric_samples IS 'One row per run_id, scrape and series: the engine''s own metrics (measured).';
COMMENT ON COLUMN metric_samples.run_id IS 'Run the row belongs to.';
COMMENT ON COLUMN metric_samples.scrape IS 'Number of the scrape, from 0.';
COMMENT ON COLUMN metric_samples.time_us IS 'Time of the scrape, microseconds since the run''s start.';
COMMENT ON COLUMN metric_samples.engine IS 'Data-parallel index of the engine; null where the page names none.';
COMMENT ON COLUMN metric_samples.model IS 'Served model; null where the page names none.';
COMMENT ON COLUMN metric_samples.name IS 'Canonical metric name; a histogram is cumulative rows <name>_bucket, and <name>_sum and <name>_count.';
COMMENT ON COLUMN metric_samples.labels IS 'Sorted JSON object of the other labels.';
COMMENT ON COLUMN metric_samples.le IS 'Upper bound of a histogram bucket, in the metric''s unit, Infinity for the last; null elsewhere.';
COMMENT ON COLUMN metric_samples.value IS 'Value in the metric''s unit; null where the page had NaN or an infinity.';
