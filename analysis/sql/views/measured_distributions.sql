-- Grain: one row per run_id, measured_dimension, group (measured_from or measured_tenant) and
-- measured_latency (ttft, tpot, e2e, queue, requeue), unordered. Quantiles are of the requests that
-- ended well and have the value: measured_values of them. measured_requests beside it counts all
-- that were offered in the group, whatever became of them: the further apart the two, the less the
-- quantile says. queue ends at the first schedule, requeue is the waiting after preemptions. Filter
-- measured_dimension: a quantile holds all its values in memory.
CREATE VIEW measured_distributions AS
WITH groups AS (
    SELECT
        run_id,
        measured_dimension,
        group_from,
        group_tenant,
        count(*) AS requests,
        count(*) FILTER (WHERE status = 'ok') AS ok,
        count(ttft_us) FILTER (WHERE status = 'ok') AS ttft,
        count(tpot_us) FILTER (WHERE status = 'ok') AS tpot,
        count(e2e_us) FILTER (WHERE status = 'ok') AS e2e,
        count(queue_time_us) FILTER (WHERE status = 'ok') AS queue,
        count(requeue_time_us) FILTER (WHERE status = 'ok') AS requeue,
        quantile_cont(ttft_us, [0.5, 0.9, 0.95, 0.99]) FILTER (WHERE status = 'ok') AS ttft_us,
        quantile_cont(tpot_us, [0.5, 0.9, 0.95, 0.99]) FILTER (WHERE status = 'ok') AS tpot_us,
        quantile_cont(e2e_us, [0.5, 0.9, 0.95, 0.99]) FILTER (WHERE status = 'ok') AS e2e_us,
        quantile_cont(queue_time_us, [0.5, 0.9, 0.95, 0.99]) FILTER (WHERE status = 'ok')
            AS queue_us,
        quantile_cont(requeue_time_us, [0.5, 0.9, 0.95, 0.99]) FILTER (WHERE status = 'ok')
            AS requeue_us
    FROM measured_request_groups
    GROUP BY run_id, measured_dimension, group_from, group_tenant
),
latencies AS (
    SELECT
        run_id,
        measured_dimension,
        group_from,
        group_tenant,
        requests,
        ok,
        unnest([
            {'place': 1, 'latency': 'ttft', 'values': ttft, 'us': ttft_us},
            {'place': 2, 'latency': 'tpot', 'values': tpot, 'us': tpot_us},
            {'place': 3, 'latency': 'e2e', 'values': e2e, 'us': e2e_us},
            {'place': 4, 'latency': 'queue', 'values': queue, 'us': queue_us},
            {'place': 5, 'latency': 'requeue', 'values': requeue, 'us': requeue_us}
        ]) AS x
    FROM groups
)
SELECT
    run_id,
    measured_dimension,
    group_from AS measured_from,
    CASE
        WHEN measured_dimension IN ('prompt_tokens', 'output_tokens')
            THEN greatest(2 * CAST(group_from AS HUGEINT) - 1, group_from)
        ELSE group_from
    END AS measured_to,
    group_tenant AS measured_tenant,
    x.place AS measured_place,
    x.latency AS measured_latency,
    requests AS measured_requests,
    ok AS measured_ok,
    x.values AS measured_values,
    x.us[1] AS measured_p50_us,
    x.us[2] AS measured_p90_us,
    x.us[3] AS measured_p95_us,
    x.us[4] AS measured_p99_us
FROM latencies;
