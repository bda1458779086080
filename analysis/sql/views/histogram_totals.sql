-- Grain: one row per run_id, measured_model, measured_labels, measured_name, measured_le,
-- unordered: by how much a cumulative bucket of a histogram rose from its first sample to its last,
-- the data-parallel engines of a run added bucket by bucket (measured_engines of them). Null is not
-- measured: fewer than two samples, several workers by turns.
CREATE VIEW histogram_totals AS
WITH series AS (
    SELECT
        run_id,
        measured_engine,
        measured_model,
        measured_labels,
        measured_name,
        measured_le,
        min(measured_to_us) AS from_us,
        max(measured_to_us) AS to_us,
        count(*) FILTER (WHERE measured_reset) AS resets,
        -- An increase that no integer holds makes the whole unknown.
        CASE
            WHEN count(measured_increase) = count(measured_from_us) THEN sum(measured_increase)
        END AS increase
    FROM histogram_increases
    GROUP BY
        run_id, measured_engine, measured_model, measured_labels, measured_name, measured_le
)
SELECT
    run_id,
    measured_model,
    measured_labels,
    measured_name,
    measured_le,
    count(*) AS measured_engines,
    min(from_us) AS measured_from_us,
    max(to_us) AS measured_to_us,
    CAST(sum(resets) AS BIGINT) AS measured_resets,
    CASE WHEN count(increase) = count(*) THEN TRY_CAST(sum(increase) AS BIGINT) END
        AS measured_increase
FROM series
GROUP BY run_id, measured_model, measured_labels, measured_name, measured_le;
