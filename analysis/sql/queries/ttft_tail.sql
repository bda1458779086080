-- Grain: one row per run_id, measured_quantile (0.5, 0.95) of TTFT.
-- How much of TTFT p95 is requeue time, and how much the first wait in the queue?
-- Sums over the requests that ended well with a TTFT of at least that quantile. Requeue is the
-- waiting of victims that had no token yet, by the recorder: null where nobody recorded events. The
-- rest is prefill and what no mark of the engine covers; where the client's clock took the TTFT, a
-- difference between the clocks, too.
WITH recorded AS (
    SELECT DISTINCT run_id FROM measured_events
),
runs AS (
    SELECT
        run_id,
        count(*) AS requests,
        count(ttft_us) FILTER (WHERE status = 'ok') AS known,
        quantile_cont(ttft_us, [0.5, 0.95]) FILTER (WHERE status = 'ok') AS ttft_us
    FROM measured_requests
    GROUP BY run_id
),
limits AS (
    SELECT
        run_id,
        requests,
        known,
        unnest([
            {'quantile': 0.5, 'ttft_us': ttft_us[1]}, {'quantile': 0.95, 'ttft_us': ttft_us[2]}
        ]) AS x
    FROM runs
),
tails AS (
    SELECT
        l.run_id,
        l.x.quantile AS quantile,
        any_value(l.requests) AS requests,
        any_value(l.known) AS known,
        any_value(l.x.ttft_us) AS limit_us,
        count(q.request_id) AS tail,
        CAST(sum(q.ttft_us) AS BIGINT) AS ttft_us,
        CASE WHEN count(q.queue_time_us) = count(*) THEN CAST(sum(q.queue_time_us) AS BIGINT) END
            AS queue_us,
        CASE
            WHEN
                any_value(r.run_id) IS NOT NULL
                AND count(q.request_id) > 0
                AND count(v.request_id) = count(v.measured_wait_before_first_token_us)
                THEN coalesce(CAST(sum(v.measured_wait_before_first_token_us) AS BIGINT), 0)
        END AS requeue_us
    FROM limits AS l
    LEFT JOIN recorded AS r ON r.run_id = l.run_id
    LEFT JOIN measured_requests AS q
        ON q.run_id = l.run_id AND q.status = 'ok' AND q.ttft_us >= l.x.ttft_us
    LEFT JOIN measured_victims AS v
        ON v.run_id = q.run_id
        AND v.measured_engine = q.engine
        AND v.request_id = q.request_id
    GROUP BY l.run_id, l.x.quantile
)
SELECT
    run_id,
    CAST(quantile AS DOUBLE) AS measured_quantile,
    requests AS measured_requests,
    known AS measured_values,
    limit_us AS measured_ttft_us,
    tail AS measured_tail_requests,
    ttft_us AS measured_tail_ttft_us,
    queue_us AS measured_tail_queue_us,
    requeue_us AS measured_tail_requeue_us,
    ttft_us - queue_us - requeue_us AS measured_tail_rest_us,
    queue_us / nullif(ttft_us, 0) AS measured_queue_frac,
    requeue_us / nullif(ttft_us, 0) AS measured_requeue_frac
FROM tails
ORDER BY run_id, quantile;
