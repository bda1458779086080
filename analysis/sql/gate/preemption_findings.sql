-- Grain: one row per (run_id, finding, request_id), at most most_ids of a run's finding; total
-- counts them all, worst is the finding's greatest number of preemptions that any table shows.
-- Findings: above (more than allowed), at_limit (not finished, every allowed preemption used),
-- unfinished (not finished, fewer: judged on what was seen), not_known (no number recorded),
-- contradicted (the events show more than the row says).
-- A row that names no engine takes events of any.
-- Binds: run_ids, max_preemptions, most_ids.
WITH
marks AS (
    SELECT
        run_id,
        engine,
        request_id,
        greatest(count(*) FILTER (kind = 'preempt'), coalesce(max(num_preemptions), 0)) AS shown
    FROM measured_events
    WHERE list_contains($run_ids, run_id)
    GROUP BY run_id, engine, request_id
),

requests AS (
    SELECT
        coalesce(r.run_id, e.run_id) AS run_id,
        coalesce(r.request_id, e.request_id) AS request_id,
        r.status,
        r.num_preemptions,
        coalesce(e.shown, 0) AS shown,
        greatest(coalesce(r.num_preemptions, 0), coalesce(e.shown, 0)) AS seen
    FROM (SELECT * FROM measured_requests WHERE list_contains($run_ids, run_id)) AS r
    FULL JOIN marks AS e
        ON
            r.run_id = e.run_id
            AND r.request_id = e.request_id
            AND coalesce(r.engine, e.engine) = e.engine
),

findings AS (
    SELECT run_id, request_id, seen, 'above' AS finding
    FROM requests WHERE seen > $max_preemptions
    UNION ALL
    SELECT run_id, request_id, seen, 'at_limit' AS finding
    FROM requests
    WHERE status IN ('censored', 'aborted', 'error') AND seen = $max_preemptions
    UNION ALL
    SELECT run_id, request_id, seen, 'unfinished' AS finding
    FROM requests
    WHERE status IN ('censored', 'aborted', 'error') AND seen < $max_preemptions
    UNION ALL
    SELECT run_id, request_id, seen, 'not_known' AS finding
    FROM requests
    WHERE num_preemptions IS NULL AND status NOT IN ('unsent', 'rejected')
    UNION ALL
    SELECT run_id, request_id, seen, 'contradicted' AS finding
    FROM requests WHERE shown > coalesce(num_preemptions, CASE WHEN status IS NULL THEN -1 END)
)

SELECT
    run_id,
    finding,
    request_id,
    max(seen) OVER (PARTITION BY run_id, finding) AS worst,
    count(*) OVER (PARTITION BY run_id, finding) AS total
FROM findings
QUALIFY row_number() OVER (PARTITION BY run_id, finding ORDER BY request_id) <= $most_ids
ORDER BY run_id, finding, request_id;
