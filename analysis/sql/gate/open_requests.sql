-- Grain: one row per unit in which requests arrived that have no row: they had not ended when the
-- run was written. Those that did end are the quicker ones, so who counts must know of these.
-- An arrival has no columns to ask of which slice it is. Binds: units (see eligible_requests).
SELECT
    u.unit AS run_id,
    count(*) AS open
FROM (SELECT unnest($units, recursive := true)) AS u
INNER JOIN measured_events AS e
    ON u.run_id = e.run_id AND e.time_us BETWEEN u.from_us AND u.until_us
ANTI JOIN measured_requests AS r
    ON
        e.run_id = r.run_id
        AND e.request_id = r.request_id
        AND e.engine = coalesce(r.engine, e.engine)
WHERE e.kind = 'arrive'
GROUP BY u.unit
ORDER BY u.unit;
