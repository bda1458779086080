-- Grain: one row per run_id, measured_nth_preemption.
-- How long were victims waiting on the real engine until they were resumed?
-- By whether it was a request's first preemption or a later one. Quantiles rest on the
-- measured_resumed of all measured_preempt_events; who was never resumed waited longer than anybody
-- knows.
WITH victims AS (
    SELECT
        run_id,
        measured_nth_preemption,
        count(*) AS preempt_events,
        count(measured_wait_us) AS resumed,
        quantile_cont(measured_wait_us, [0.5, 0.9, 0.95, 0.99]) AS wait_us,
        max(measured_wait_us) AS max_us
    FROM measured_victim_waits
    GROUP BY run_id, measured_nth_preemption
)
SELECT
    run_id,
    measured_nth_preemption,
    preempt_events AS measured_preempt_events,
    resumed AS measured_resumed,
    wait_us[1] AS measured_wait_p50_us,
    wait_us[2] AS measured_wait_p90_us,
    wait_us[3] AS measured_wait_p95_us,
    wait_us[4] AS measured_wait_p99_us,
    max_us AS measured_wait_max_us
FROM victims
ORDER BY run_id, measured_nth_preemption NULLS LAST;
