-- Grain: one row per request of the runs `run_ids` in a slice. eligible: arrived behind the warm-up
-- and follow_up_us before observation ended. ttft_capped and e2e_capped are an eligible request's,
-- at most follow_up_us: what failed or never came counts as that, or as infinite where no follow-up
-- is planned; an ok request without a time has none.
-- A macro for the page's queries, because they all have to mean the same requests. A bound of
-- `part` that is null is not set; a column that is null is in no slice that asks for it.
CREATE OR REPLACE TEMP MACRO scope_requests(run_ids, part, warmup_us, follow_up_us) AS TABLE
WITH requests AS (
    SELECT
        r.status,
        r.num_preemptions,
        r.ttft_us,
        r.e2e_us,
        coalesce(
            r.arrival_us >= warmup_us AND r.arrival_us <= m.drain_end_us - follow_up_us, false
        ) AS eligible,
        CASE WHEN follow_up_us > 0 THEN follow_up_us ELSE 'infinity'::DOUBLE END AS cap,
        r.queue_time_us + coalesce(r.requeue_time_us, 0) AS wait_us
    FROM measured_runs AS m
    INNER JOIN measured_requests AS r ON m.run_id = r.run_id
    WHERE
        list_contains(run_ids, m.run_id)
        AND (part['priority_min'] IS NULL OR r.priority >= part['priority_min'])
        AND (part['priority_max'] IS NULL OR r.priority <= part['priority_max'])
        AND (part['prompt_tokens_min'] IS NULL OR r.prompt_tokens >= part['prompt_tokens_min'])
        AND (part['prompt_tokens_max'] IS NULL OR r.prompt_tokens <= part['prompt_tokens_max'])
        AND (part['max_tokens_min'] IS NULL OR r.max_tokens >= part['max_tokens_min'])
        AND (part['max_tokens_max'] IS NULL OR r.max_tokens <= part['max_tokens_max'])
        AND (part['arrival_us_min'] IS NULL OR r.arrival_us >= part['arrival_us_min'])
        AND (part['arrival_us_max'] IS NULL OR r.arrival_us <= part['arrival_us_max'])
        AND (part['tenants'] IS NULL OR list_contains(part['tenants'], r.tenant))
)

SELECT
    status,
    num_preemptions,
    wait_us,
    eligible,
    CASE
        WHEN NOT eligible THEN NULL
        WHEN status IN ('error', 'aborted', 'rejected', 'unsent') THEN cap
        WHEN ttft_us IS NOT NULL THEN least(ttft_us, cap)
        WHEN status = 'censored' THEN cap
    END AS ttft_capped,
    CASE
        WHEN NOT eligible THEN NULL
        WHEN status != 'ok' THEN cap
        WHEN e2e_us IS NOT NULL THEN least(e2e_us, cap)
    END AS e2e_capped
FROM requests;
