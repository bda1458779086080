-- Grain: one row per ledger_id, run_id, field in which a ledger and the run that its workload came
-- from differ. A pair without a row is like with like: fidelity; with one it is a what-if.
CREATE VIEW join_differences AS
SELECT ledger_id, run_id, field, modelled_value, measured_value
FROM all_differences
WHERE ledger_run_id = run_id
ORDER BY ledger_id, run_id, field;
