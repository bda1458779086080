-- Grain: one row per ledger_id, run_id, modelled_dimension, group (modelled_from or
-- modelled_tenant) and modelled_latency (ttft, tpot, e2e, queue, requeue), unordered. Quantiles are
-- of the completed requests that have the value; modelled_requests counts all of the group,
-- censored ones too. …_ticks are declared arithmetic and not latency; …_us are those of a timed
-- replay, null in any other. In ticks e2e is completion less arrival; queue is the first wait and
-- the re-entries together, requeue the re-entries alone. Filter modelled_dimension: a quantile
-- holds all its values in memory.
CREATE VIEW modelled_distributions AS
WITH requests AS (
    SELECT
        *,
        completion_tick - arrival_tick AS e2e_ticks,
        queue_ticks - (first_admit_tick - arrival_tick) AS requeue_ticks
    FROM modelled_request_groups
),
groups AS (
    SELECT
        ledger_id,
        run_id,
        modelled_dimension,
        group_from,
        group_tenant,
        count(*) AS requests,
        count(*) FILTER (WHERE status = 'complete') AS complete,
        count(modelled_ttft_ticks) FILTER (WHERE status = 'complete') AS ttft_known,
        count(modelled_tpot_ticks) FILTER (WHERE status = 'complete') AS tpot_known,
        count(modelled_ttft_us) FILTER (WHERE status = 'complete') AS ttft_us_known,
        count(modelled_tpot_us) FILTER (WHERE status = 'complete') AS tpot_us_known,
        count(modelled_e2e_us) FILTER (WHERE status = 'complete') AS e2e_us_known,
        count(modelled_queue_us) FILTER (WHERE status = 'complete') AS queue_us_known,
        quantile_cont(modelled_ttft_ticks, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS ttft_ticks,
        quantile_cont(modelled_tpot_ticks, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS tpot_ticks,
        quantile_cont(e2e_ticks, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS e2e_ticks,
        quantile_cont(queue_ticks, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS queue_ticks,
        quantile_cont(requeue_ticks, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS requeue_ticks,
        quantile_cont(modelled_ttft_us, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS ttft_us,
        quantile_cont(modelled_tpot_us, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS tpot_us,
        quantile_cont(modelled_e2e_us, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS e2e_us,
        quantile_cont(modelled_queue_us, [0.5, 0.9, 0.95, 0.99])
            FILTER (WHERE status = 'complete') AS queue_us
    FROM requests
    GROUP BY ledger_id, run_id, modelled_dimension, group_from, group_tenant
),
latencies AS (
    SELECT
        ledger_id,
        run_id,
        modelled_dimension,
        group_from,
        group_tenant,
        requests,
        complete,
        unnest([
            {
                'place': 1, 'latency': 'ttft', 'values': ttft_known, 'ticks': ttft_ticks,
                'us_values': ttft_us_known, 'us': ttft_us
            },
            {
                'place': 2, 'latency': 'tpot', 'values': tpot_known, 'ticks': tpot_ticks,
                'us_values': tpot_us_known, 'us': tpot_us
            },
            {
                'place': 3, 'latency': 'e2e', 'values': complete, 'ticks': e2e_ticks,
                'us_values': e2e_us_known, 'us': e2e_us
            },
            {
                'place': 4, 'latency': 'queue', 'values': complete, 'ticks': queue_ticks,
                'us_values': queue_us_known, 'us': queue_us
            },
            {
                'place': 5, 'latency': 'requeue', 'values': complete, 'ticks': requeue_ticks,
                'us_values': 0, 'us': NULL
            }
        ]) AS x
    FROM groups
)
SELECT
    ledger_id,
    run_id,
    modelled_dimension,
    group_from AS modelled_from,
    CASE
        WHEN modelled_dimension IN ('prompt_tokens', 'output_tokens')
            THEN greatest(2 * CAST(group_from AS HUGEINT) - 1, group_from)
        ELSE group_from
    END AS modelled_to,
    group_tenant AS modelled_tenant,
    x.place AS modelled_place,
    x.latency AS modelled_latency,
    requests AS modelled_requests,
    complete AS modelled_complete,
    x.values AS modelled_values,
    x.ticks[1] AS modelled_p50_ticks,
    x.ticks[2] AS modelled_p90_ticks,
    x.ticks[3] AS modelled_p95_ticks,
    x.ticks[4] AS modelled_p99_ticks,
    x.us_values AS modelled_us_values,
    x.us[1] AS modelled_p50_us,
    x.us[2] AS modelled_p90_us,
    x.us[3] AS modelled_p95_us,
    x.us[4] AS modelled_p99_us
FROM latencies;
