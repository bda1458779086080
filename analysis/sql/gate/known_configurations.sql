-- Grain: one row if some run of the store had this configuration. Binds: configuration_sha256.
SELECT configuration_sha256
FROM measured_runs
WHERE configuration_sha256 = $configuration_sha256
LIMIT 1;
