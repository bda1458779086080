-- Grain: one row per gate report, by name.
SELECT gate_name, verdict, report
FROM gate_results
ORDER BY gate_name, report_sha256;
