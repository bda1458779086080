-- Grain: one row per run_id that has eligible requests of the slice.
-- Good requests are ok and meet every objective; what failed, was shed or never answered is bad.
-- A time per output token that a single token cannot have is no objective of it. unknown counts ok
-- requests of which a value is missing and none is too long: nobody knows whether they are good.
-- send_window_us: from the warm-up to the last eligible send; null where its end is unknown.
-- Binds: run_ids, warmup_us, follow_up_us, part (see eligible_requests), and a limit in
-- microseconds of each latency field, null where it is none of the objectives.
WITH
judged AS (
    SELECT
        run_id,
        status,
        -- Each objective: true, false, or null where the value is missing.
        [
            $queue_time_us::BIGINT IS NULL OR queue_time_us <= $queue_time_us,
            $requeue_time_us::BIGINT IS NULL OR requeue_time_us <= $requeue_time_us,
            $prefill_time_us::BIGINT IS NULL OR prefill_time_us <= $prefill_time_us,
            $decode_time_us::BIGINT IS NULL OR decode_time_us <= $decode_time_us,
            $ttft_us::BIGINT IS NULL OR ttft_us <= $ttft_us,
            without_tpot OR $tpot_us::BIGINT IS NULL OR tpot_us <= $tpot_us,
            $e2e_us::BIGINT IS NULL OR e2e_us <= $e2e_us
        ] AS met
    FROM eligible_requests($run_ids, $warmup_us, $follow_up_us, $part)
),

outcomes AS (
    SELECT
        run_id,
        CASE
            WHEN status != 'ok' OR list_contains(met, false) THEN 'bad'
            WHEN list_count(met) < len(met) THEN 'unknown'
            ELSE 'good'
        END AS outcome
    FROM judged
)

SELECT
    o.run_id,
    count(*) AS requests,
    count(*) FILTER (o.outcome = 'good') AS good,
    count(*) FILTER (o.outcome = 'unknown') AS unknown,
    any_value(
        CASE
            WHEN m.send_end_us > m.drain_end_us - $follow_up_us THEN m.drain_end_us - $follow_up_us
            ELSE m.send_end_us
        END - $warmup_us
    ) AS send_window_us
FROM outcomes AS o
INNER JOIN measured_runs AS m ON o.run_id = m.run_id
GROUP BY o.run_id
ORDER BY o.run_id;
