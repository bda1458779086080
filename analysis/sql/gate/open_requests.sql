-- Grain: one row per unit in which requests arrived that have no row. open had not ended when the
-- run was written: those that did end are the quicker ones, so who counts must know of these. torn
-- have an end among their events: the run was read while it was being written.
-- An arrival has no columns to ask of which slice it is. Binds: units (see eligible_requests).
WITH arrived AS (
    SELECT
        u.unit,
        e.run_id,
        e.engine,
        e.request_id
    FROM (SELECT unnest($units, recursive := true)) AS u
    INNER JOIN measured_events AS e
        ON u.run_id = e.run_id AND e.time_us BETWEEN u.from_us AND u.until_us
    ANTI JOIN measured_requests AS r
        ON
            e.run_id = r.run_id
            AND e.request_id = r.request_id
            AND e.engine = coalesce(r.engine, e.engine)
    WHERE e.kind = 'arrive'
)

SELECT
    a.unit AS run_id,
    count(*) FILTER (f.request_id IS NULL) AS open,
    count(f.request_id) AS torn
FROM arrived AS a
LEFT JOIN (
    SELECT DISTINCT run_id, engine, request_id FROM measured_events WHERE kind = 'finish'
) AS f
    ON a.run_id = f.run_id AND a.engine = f.engine AND a.request_id = f.request_id
GROUP BY a.unit
ORDER BY a.unit;
