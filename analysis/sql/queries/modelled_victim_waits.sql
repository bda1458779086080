-- Grain: one row per ledger_id, run_id, modelled_nth_preemption.
-- How long were victims waiting in the replay until they were resumed?
-- Ticks are declared arithmetic, not latency; the columns in us are those of a timed replay, null
-- in any other. Quantiles rest on the modelled_resumed of all modelled_preempt_events.
WITH victims AS (
    SELECT
        ledger_id,
        run_id,
        modelled_nth_preemption,
        count(*) AS preempt_events,
        count(modelled_wait_ticks) AS resumed,
        quantile_cont(modelled_wait_ticks, [0.5, 0.9, 0.95, 0.99]) AS wait_ticks,
        quantile_cont(modelled_wait_us, [0.5, 0.9, 0.95, 0.99]) AS wait_us
    FROM modelled_victim_waits
    GROUP BY ledger_id, run_id, modelled_nth_preemption
)
SELECT
    ledger_id,
    run_id,
    modelled_nth_preemption,
    preempt_events AS modelled_preempt_events,
    resumed AS modelled_resumed,
    wait_ticks[1] AS modelled_wait_p50_ticks,
    wait_ticks[2] AS modelled_wait_p90_ticks,
    wait_ticks[3] AS modelled_wait_p95_ticks,
    wait_ticks[4] AS modelled_wait_p99_ticks,
    wait_us[1] AS modelled_wait_p50_us,
    wait_us[2] AS modelled_wait_p90_us,
    wait_us[3] AS modelled_wait_p95_us,
    wait_us[4] AS modelled_wait_p99_us
FROM victims
ORDER BY ledger_id, run_id, modelled_nth_preemption;
