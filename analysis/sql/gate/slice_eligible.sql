-- Grain: one row per unit: a run with a known end of observation, or a window.
-- Eligible requests of one slice.
-- Binds: units and part (see eligible_requests).
SELECT
    u.unit AS run_id,
    count(r.request_id) AS eligible
FROM (SELECT DISTINCT unnest(list_transform($units, lambda x: x.unit)) AS unit) AS u
LEFT JOIN eligible_requests($units, $part) AS r ON u.unit = r.run_id
GROUP BY u.unit
ORDER BY u.unit;
