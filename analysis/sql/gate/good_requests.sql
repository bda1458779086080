-- Grain: one row per run_id that has eligible requests of the slice.
-- How many are good, bad or unknown (see request_outcomes).
-- send_window_us: from the warm-up to the last eligible send; null where its end is unknown.
-- Binds: run_ids, warmup_us, follow_up_us, part (see eligible_requests), slo (request_outcomes).
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
FROM request_outcomes($run_ids, $warmup_us, $follow_up_us, $part, $slo) AS o
INNER JOIN measured_runs AS m ON o.run_id = m.run_id
GROUP BY o.run_id
ORDER BY o.run_id;
