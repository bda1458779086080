-- Grain: one row per run_id that has eligible requests of the slice.
-- How many are good, bad or unknown (see request_outcomes).
-- send_window_us: from a unit's beginning to its last eligible send; null where its end is unknown
-- of a driven run, the whole unit of an observed one.
-- Binds: units and part (see eligible_requests), slo (see request_outcomes).
WITH windows AS (
    SELECT
        u.unit,
        CASE
            WHEN count(*) = count(m.send_end_us) OR bool_and(m.kind = 'observed')
                THEN max(least(coalesce(m.send_end_us, u.until_us), u.until_us) - u.from_us)
        END AS send_window_us
    FROM (SELECT unnest($units, recursive := true)) AS u
    INNER JOIN measured_runs AS m ON u.run_id = m.run_id
    GROUP BY u.unit
)

SELECT
    o.run_id,
    count(*) AS requests,
    count(*) FILTER (o.outcome = 'good') AS good,
    count(*) FILTER (o.outcome = 'unknown') AS unknown,
    any_value(w.send_window_us) AS send_window_us
FROM request_outcomes($units, $part, $slo) AS o
INNER JOIN windows AS w ON o.run_id = w.unit
GROUP BY o.run_id
ORDER BY o.run_id;
