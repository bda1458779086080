-- Grain: one row per ledger_id, run_id: the declared inputs of each replay and what it came to.
SELECT
    l.*,
    CAST(l.receipt -> '$.what_ifs' AS VARCHAR[]) AS what_ifs,
    a.arrivals,
    f.modelled_flagged_wait_requests,
    f.modelled_flagged_repeat_requests
FROM modelled_ledgers AS l
LEFT JOIN flagged_requests AS f
    ON f.ledger_id = l.ledger_id AND f.run_id IS NOT DISTINCT FROM l.run_id
LEFT JOIN ledger_arrivals AS a
    ON a.ledger_id = l.ledger_id AND a.ledger_run_id = l.run_id AND a.run_id = l.run_id
ORDER BY
    l.workload_sha256,
    l.input_sha256,
    list_position(['recompute', 'swap', 'adaptive'], l.recovery),
    l.victim,
    l.run_id,
    l.ledger_id;
