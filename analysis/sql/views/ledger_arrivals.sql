-- Grain: one row per ledger_id, ledger_run_id, run_id where a ledger replayed a run's requests, by
-- their hash: all of them, or all that reached one engine. arrivals: time (the clock's) or steps
-- (the engine's own); engine is null for all requests.
CREATE VIEW ledger_arrivals AS
SELECT l.ledger_id, l.run_id AS ledger_run_id, w.run_id, w.arrivals, w.engine
FROM modelled_ledgers AS l
JOIN measured_workloads AS w ON w.workload_sha256 = l.workload_sha256;
