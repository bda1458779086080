-- Grain: one row per run_id that has eligible requests of the slice.
-- How many requests arrive during one e2e at its p95 (cut off as everywhere): about so many are
-- alive at a time, and what one of them meets the others meet, too. Null where nobody knows e2e.
-- Binds: units and part (see eligible_requests), field (e2e_us).
SELECT
    run_id,
    ceil(
        count(*) * quantile_cont(value_us, 0.95)
        / greatest(max(arrival_us) - min(arrival_us), 1)
    )::BIGINT AS alive
FROM capped_values($units, $part, $field)
GROUP BY run_id
ORDER BY run_id;
