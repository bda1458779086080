-- Grain: one row per report_sha256: the verdict of one gate over the runs its report names.
CREATE TABLE gate_results (
    gate_name VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    gate_sha256 VARCHAR NOT NULL,
    report_sha256 VARCHAR NOT NULL PRIMARY KEY,
    report JSON NOT NULL
);
COMMENT ON TABLE gate_results IS 'One row per report_sha256: the verdict of one gate over the runs its report names.';
COMMENT ON COLUMN gate_results.gate_name IS 'Name of the gate.';
COMMENT ON COLUMN gate_results.verdict IS 'pass, fail, inconclusive or refused.';
COMMENT ON COLUMN gate_results.gate_sha256 IS 'Hash of the gate''s definition.';
COMMENT ON COLUMN gate_results.report_sha256 IS 'Hash of the report without this hash.';
COMMENT ON COLUMN gate_results.report IS 'The whole report (preemption-gate-report/1), canonical JSON.';
