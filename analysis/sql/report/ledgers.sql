-- Grain: one row per ledger_id, run_id: the declared inputs of each replay and what it came to.
WITH flagged AS (
    SELECT
        ledger_id,
        run_id,
        count(*) FILTER (WHERE flagged_wait) AS wait,
        count(*) FILTER (WHERE flagged_repeat) AS repeat
    FROM modelled_requests
    GROUP BY ledger_id, run_id
)
SELECT
    l.*,
    f.wait AS modelled_flagged_wait,
    f.repeat AS modelled_flagged_repeat
FROM modelled_ledgers AS l
LEFT JOIN flagged AS f
    ON f.ledger_id = l.ledger_id AND f.run_id IS NOT DISTINCT FROM l.run_id
ORDER BY
    l.workload_sha256,
    l.input_sha256,
    list_position(['recompute', 'swap', 'adaptive'], l.recovery),
    l.victim,
    l.run_id,
    l.ledger_id;
