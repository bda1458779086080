-- Grain: one row per ledger_id, run_id, modelled_from, modelled_latency.
-- How do the modelled latencies move with the number of tokens to generate?
-- A group is modelled_from to modelled_to tokens that the workload asks for. Ticks are declared
-- arithmetic, not latency; the columns in us are those of a timed replay, null in any other.
-- Quantiles rest on modelled_values (modelled_us_values) of the modelled_requests, which are all
-- of the group, censored ones too.
SELECT
    ledger_id,
    run_id,
    modelled_from,
    modelled_to,
    modelled_latency,
    modelled_requests,
    modelled_complete,
    modelled_values,
    modelled_p50_ticks,
    modelled_p90_ticks,
    modelled_p95_ticks,
    modelled_p99_ticks,
    modelled_us_values,
    modelled_p50_us,
    modelled_p90_us,
    modelled_p95_us,
    modelled_p99_us
FROM modelled_distributions
WHERE modelled_dimension = 'output_tokens'
ORDER BY ledger_id, run_id, modelled_from NULLS LAST, modelled_place;
