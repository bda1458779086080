-- Grain: one row per side that has eligible requests.
-- The longest wait between two chunks with tokens beside the mean one (TPOT): a mean does not show
-- a stream that stood still. known counts the requests that have it; what nobody recorded is null.
-- Binds: units, part, baseline_ids (see eligible_requests).
SELECT
    CASE WHEN list_contains($baseline_ids, run_id) THEN 'baseline' ELSE 'candidate' END AS side,
    count(*) AS requests,
    count(largest_gap_us) AS known,
    quantile_cont(tpot_us, 0.95) AS tpot_p95_us,
    max(tpot_us)::DOUBLE AS tpot_max_us,
    quantile_cont(largest_gap_us, 0.95) AS gap_p95_us,
    max(largest_gap_us)::DOUBLE AS gap_max_us
FROM eligible_requests($units, $part)
GROUP BY side
ORDER BY side;
