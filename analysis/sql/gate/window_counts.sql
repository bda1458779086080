-- Grain: one row per unit that has eligible requests of the slice.
-- What became of them; failed is error, aborted, rejected or unsent.
-- Binds: units and part (see eligible_requests).
SELECT
    run_id,
    count(*) AS requests,
    count(*) FILTER (status NOT IN ('ok', 'censored')) AS failed,
    count(*) FILTER (status = 'censored') AS censored
FROM eligible_requests($units, $part)
GROUP BY run_id
ORDER BY run_id;
