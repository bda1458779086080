-- Grain: one row per eligible request of a slice: arrived in one of `units`, which are a run from
-- its warm-up to follow_up_us before observation ended, or the windows of live runs. run_id is the
-- unit's name: a run's own, or that of a window on one side, whatever runs it is of.
-- A macro for the other queries, because they all have to mean the same requests. A bound of
-- `part` that is null is not set; a column that is null is in no slice that asks for it.
-- A zero that cannot have been measured is null: no first token takes 0 us, and a wait after
-- preemptions is 0 only where there was none.
CREATE OR REPLACE TEMP MACRO eligible_requests(units, part) AS TABLE
SELECT
    u.unit AS run_id,
    u.follow_up_us,
    r.request_id,
    r.arrival_us,
    r.status,
    r.generated_tokens,
    r.prompt_tokens,
    r.max_tokens,
    r.queue_time_us,
    CASE
        WHEN r.requeue_time_us > 0 OR r.num_preemptions = 0 THEN r.requeue_time_us
    END AS requeue_time_us,
    nullif(r.prefill_time_us, 0) AS prefill_time_us,
    CASE
        WHEN r.decode_time_us > 0 OR r.generated_tokens = 1 THEN r.decode_time_us
    END AS decode_time_us,
    nullif(r.ttft_us, 0) AS ttft_us,
    nullif(r.tpot_us, 0) AS tpot_us,
    nullif(r.e2e_us, 0) AS e2e_us,
    -- One token has no time per further token: that is no missing value.
    coalesce(CASE WHEN r.status = 'ok' THEN r.generated_tokens ELSE r.max_tokens END <= 1, false)
        AS without_tpot
FROM (SELECT unnest(units, recursive := true)) AS u
INNER JOIN measured_requests AS r
    ON u.run_id = r.run_id AND r.arrival_us BETWEEN u.from_us AND u.until_us
WHERE
    (part['priority_min'] IS NULL OR r.priority >= part['priority_min'])
    AND (part['priority_max'] IS NULL OR r.priority <= part['priority_max'])
    AND (part['prompt_tokens_min'] IS NULL OR r.prompt_tokens >= part['prompt_tokens_min'])
    AND (part['prompt_tokens_max'] IS NULL OR r.prompt_tokens <= part['prompt_tokens_max'])
    AND (part['max_tokens_min'] IS NULL OR r.max_tokens >= part['max_tokens_min'])
    AND (part['max_tokens_max'] IS NULL OR r.max_tokens <= part['max_tokens_max'])
    AND (part['arrival_us_min'] IS NULL OR r.arrival_us >= part['arrival_us_min'])
    AND (part['arrival_us_max'] IS NULL OR r.arrival_us <= part['arrival_us_max'])
    AND (part['tenants'] IS NULL OR list_contains(part['tenants'], r.tenant))
UNION ALL BY NAME
-- Of a live run, requests that arrived and have not ended: they have no row, no columns to ask of
-- which slice they are, and took at least as long as they were followed.
SELECT
    u.unit AS run_id,
    u.follow_up_us,
    u.until_us AS arrival_us,
    'censored' AS status,
    false AS without_tpot
FROM (SELECT unnest(units, recursive := true)) AS u
CROSS JOIN unnest(range(u.open));
