-- Grain: one row per pair and request that both runs of a pair answered or failed, at most
-- most_rows: the greatest increase in e2e first, capped at follow_up_us where there is one. What
-- failed counts as follow_up_us; without a follow-up only requests that both runs finished are in.
-- Binds: baseline_ids, candidate_ids (pair by pair), warmup_us, follow_up_us, most_rows.
WITH
pairs AS (
    SELECT
        unnest($baseline_ids::VARCHAR[]) AS baseline_id,
        unnest($candidate_ids::VARCHAR[]) AS candidate_id,
        unnest(range(len($baseline_ids))) AS pair
),

sides AS (
    SELECT
        r.*,
        CASE
            WHEN r.status != 'ok' THEN nullif($follow_up_us, 0)
            ELSE least(r.e2e_us, coalesce(nullif($follow_up_us, 0), r.e2e_us))
        END AS capped_us,
        r.queue_time_us + coalesce(r.requeue_time_us, 0) AS wait_us
    FROM measured_requests AS r
    INNER JOIN measured_runs AS m ON r.run_id = m.run_id
    WHERE
        r.arrival_us >= $warmup_us
        AND coalesce(r.arrival_us <= m.drain_end_us - $follow_up_us, $follow_up_us = 0)
)

SELECT
    p.pair,
    c.request_id,
    b.status AS baseline_status,
    c.status AS candidate_status,
    b.capped_us AS baseline_e2e_us,
    c.capped_us AS candidate_e2e_us,
    c.capped_us - b.capped_us AS increase_us,
    b.ttft_us AS baseline_ttft_us,
    c.ttft_us AS candidate_ttft_us,
    b.wait_us AS baseline_wait_us,
    c.wait_us AS candidate_wait_us,
    b.num_preemptions AS baseline_preemptions,
    c.num_preemptions AS candidate_preemptions
FROM pairs AS p
INNER JOIN sides AS b ON p.baseline_id = b.run_id
INNER JOIN sides AS c ON p.candidate_id = c.run_id AND b.request_id = c.request_id
WHERE c.capped_us > b.capped_us
ORDER BY increase_us DESC, p.pair, c.request_id
LIMIT $most_rows;
