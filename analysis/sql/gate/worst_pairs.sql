-- Grain: one row per request that both runs of a pair answered or failed, at most most_rows: the
-- greatest increase in e2e first, capped at follow_up_us where there is one. What failed counts as
-- follow_up_us; without a follow-up only requests that both runs finished are in.
-- Binds: baseline_id, candidate_id, warmup_us, follow_up_us, most_rows.
WITH
sides AS (
    SELECT
        r.run_id,
        r.request_id,
        r.status,
        r.ttft_us,
        r.num_preemptions,
        CASE
            WHEN r.status != 'ok' THEN nullif($follow_up_us, 0)
            ELSE least(r.e2e_us, coalesce(nullif($follow_up_us, 0), r.e2e_us))
        END AS capped_us,
        r.queue_time_us + coalesce(r.requeue_time_us, 0) AS wait_us
    FROM measured_requests AS r
    INNER JOIN measured_runs AS m ON r.run_id = m.run_id
    WHERE
        r.run_id IN ($baseline_id, $candidate_id)
        AND r.arrival_us >= $warmup_us
        AND coalesce(r.arrival_us <= m.drain_end_us - $follow_up_us, $follow_up_us = 0)
)

SELECT
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
FROM sides AS b
INNER JOIN sides AS c ON b.request_id = c.request_id
WHERE b.run_id = $baseline_id AND c.run_id = $candidate_id AND c.capped_us > b.capped_us
ORDER BY increase_us DESC, c.request_id
LIMIT $most_rows;
