-- Grain: one row per ledger_id, run_id, field in which a ledger is not like the run it is joined with.
SELECT d.ledger_id, d.run_id, d.field, d.modelled_value, d.measured_value
FROM join_differences AS d
JOIN modelled_ledgers AS l ON l.ledger_id = d.ledger_id AND l.run_id = d.run_id
ORDER BY
    d.run_id,
    d.field,
    list_position(['recompute', 'swap', 'adaptive'], l.recovery),
    l.victim,
    d.ledger_id;
