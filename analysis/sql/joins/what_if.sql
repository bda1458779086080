-- Grain: one row per request_id (and measured_engine) of one ledger and the run its workload came
-- from; columns and labels of joined_requests.
-- Parameters: $ledger_id, $run_id.
SELECT *
FROM joined_requests
WHERE ledger_id = $ledger_id AND run_id = $run_id
ORDER BY request_id, measured_engine;
