-- Grain: one row. What this database is; a store of another version is rebuilt, never migrated.
CREATE TABLE store_info (
    schema VARCHAR NOT NULL,
    tool_version VARCHAR NOT NULL
);
COMMENT ON TABLE store_info IS 'What this database is: one row.';
COMMENT ON COLUMN store_info.schema IS 'Name and version of this layout, e.g. preemption-store/9.';
COMMENT ON COLUMN store_info.tool_version IS 'Version of preemption-ledger that made the database.';
