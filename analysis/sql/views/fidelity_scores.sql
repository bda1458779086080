-- Grain: one row per ledger_id, run_id and metric: how far a replay is from the run it describes,
-- unordered; joins that are fidelity only (fidelity_requests). Totals are of the requests that both
-- have, quantiles of those of which both know the time. error_frac is (modelled - measured) /
-- measured, null where that is unknown or measured 0. preempt_events is of stepped replays: measured
-- events, and those of them that the replay has in the same step with the same victim.
CREATE VIEW fidelity_scores AS
WITH each AS (
    SELECT
        ledger_id,
        run_id,
        fidelity_level,
        unnest([
            {
                'name': 'ttft_us',
                'modelled': CAST(modelled_ttft_us AS DOUBLE),
                'measured': CAST(measured_ttft_us AS DOUBLE)
            },
            {'name': 'tpot_us', 'modelled': modelled_tpot_us, 'measured': measured_tpot_us},
            {'name': 'e2e_us', 'modelled': modelled_e2e_us, 'measured': measured_e2e_us},
            {'name': 'queue_us', 'modelled': modelled_queue_us, 'measured': measured_queue_time_us},
            {
                'name': 'requeue_us',
                'modelled': modelled_requeue_us,
                'measured': measured_requeue_time_us
            }
        ], recursive := true)
    FROM fidelity_requests
),
times AS (
    SELECT
        ledger_id,
        run_id,
        fidelity_level,
        name,
        count(*) AS requests,
        quantile_cont(modelled, 0.5) AS modelled_p50,
        quantile_cont(measured, 0.5) AS measured_p50,
        quantile_cont(modelled, 0.95) AS modelled_p95,
        quantile_cont(measured, 0.95) AS measured_p95
    FROM each
    WHERE modelled IS NOT NULL AND measured IS NOT NULL
    GROUP BY ledger_id, run_id, fidelity_level, name
),
counted AS (
    SELECT
        ledger_id,
        run_id,
        fidelity_level,
        count(*) AS requests,
        sum(modelled_preemptions) AS modelled,
        -- One request that nobody counted makes the sum unknown.
        CASE WHEN count(measured_num_preemptions) = count(*) THEN sum(measured_num_preemptions) END
            AS measured
    FROM fidelity_requests
    GROUP BY ledger_id, run_id, fidelity_level
),
seen AS (
    SELECT c.ledger_id, c.run_id, c.requests, x.step, x.request_id
    FROM counted AS c
    JOIN ledger_arrivals AS a
        ON a.ledger_id = c.ledger_id AND a.ledger_run_id = c.run_id AND a.run_id = c.run_id
    JOIN measured_events AS x
        ON x.run_id = c.run_id AND x.engine = coalesce(a.engine, x.engine)
    WHERE c.fidelity_level = 'stepped' AND x.kind = 'preempt'
),
events AS (
    SELECT s.ledger_id, s.run_id, s.requests, count(m.seq) AS modelled, count(*) AS measured
    FROM seen AS s
    LEFT JOIN modelled_events AS m
        ON m.ledger_id = s.ledger_id
        AND m.run_id = s.run_id
        AND m.kind = 'preempt'
        AND m.tick = s.step
        AND m.request_id = s.request_id
    GROUP BY s.ledger_id, s.run_id, s.requests
),
scores AS (
    SELECT ledger_id, run_id, fidelity_level, 'preemptions' AS metric, requests, modelled, measured
    FROM counted
    UNION ALL BY NAME
    SELECT ledger_id, run_id, 'stepped' AS fidelity_level, 'preempt_events' AS metric, requests,
        modelled, measured
    FROM events
    UNION ALL BY NAME
    SELECT ledger_id, run_id, fidelity_level, name || '_p50' AS metric, requests,
        modelled_p50 AS modelled, measured_p50 AS measured
    FROM times
    UNION ALL BY NAME
    SELECT ledger_id, run_id, fidelity_level, name || '_p95' AS metric, requests,
        modelled_p95 AS modelled, measured_p95 AS measured
    FROM times
)
SELECT
    ledger_id,
    run_id,
    fidelity_level,
    metric,
    requests,
    CAST(modelled AS DOUBLE) AS modelled_value,
    CAST(measured AS DOUBLE) AS measured_value,
    (modelled - measured) / nullif(CAST(measured AS DOUBLE), 0) AS error_frac
FROM scores;
