-- Grain: one row per field in which one ledger and one run differ.
-- Parameters: $ledger_id, $ledger_run_id (null for none), $run_id.
SELECT field, modelled_value, measured_value
FROM all_differences
WHERE ledger_id = $ledger_id
    AND ledger_run_id IS NOT DISTINCT FROM $ledger_run_id
    AND run_id = $run_id
ORDER BY field;
