-- Grain: one row per run_id, workload_sha256: the hashes under which a run's own requests are
-- replayed. They differ in when requests arrive, and in which engine's are there.
CREATE TABLE measured_workloads (
    run_id VARCHAR NOT NULL,
    arrivals VARCHAR NOT NULL,
    engine BIGINT,
    workload_sha256 VARCHAR NOT NULL
);
COMMENT ON TABLE measured_workloads IS 'One row per run_id and workload_sha256: the workloads that are a run''s own requests.';
COMMENT ON COLUMN measured_workloads.run_id IS 'Name of the run.';
COMMENT ON COLUMN measured_workloads.arrivals IS 'time: requests arrive when the clock says. steps: in the step of the engine that could first schedule them.';
COMMENT ON COLUMN measured_workloads.engine IS 'Data-parallel engine whose requests these are; null: all that the run was offered.';
COMMENT ON COLUMN measured_workloads.workload_sha256 IS 'Hash of the workload''s text form.';
