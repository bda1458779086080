-- Grain: one row per run_id, measured_status, for every status there is: what did not occur is 0,
-- and null where nobody recorded requests. measured_offered is how many requests the run was
-- offered, null where nobody knows; in a driven run the statuses add up to it.
CREATE VIEW run_status_counts AS
WITH statuses (place, status) AS (
    VALUES (0, 'ok'), (1, 'aborted'), (2, 'error'), (3, 'censored'), (4, 'unsent'), (5, 'rejected')
),
recorded AS (
    SELECT run_id FROM measured_requests
    UNION
    SELECT run_id FROM measured_runs WHERE offered_requests IS NOT NULL
)
SELECT
    r.run_id,
    s.status AS measured_status,
    CASE WHEN any_value(c.run_id) IS NOT NULL THEN count(q.request_id) END AS measured_requests,
    r.offered_requests AS measured_offered
FROM measured_runs AS r
CROSS JOIN statuses AS s
LEFT JOIN recorded AS c ON c.run_id = r.run_id
LEFT JOIN measured_requests AS q ON q.run_id = r.run_id AND q.status = s.status
GROUP BY r.run_id, s.place, s.status, r.offered_requests
ORDER BY r.run_id, s.place;
