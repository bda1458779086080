-- Grain: one row per run_id that has eligible requests of the slice.
-- 1 for each request that is good, 0 for a bad one, in order of arrival (see request_outcomes);
-- known leaves out what nobody knows, so that it is shorter than requests where something is missing.
-- Binds: units and part (see eligible_requests), slo.
SELECT
    run_id,
    count(*) AS requests,
    list((outcome = 'good')::BIGINT ORDER BY arrival_us, request_id) FILTER (outcome != 'unknown')
        AS known
FROM request_outcomes($units, $part, $slo)
GROUP BY run_id
ORDER BY run_id;
