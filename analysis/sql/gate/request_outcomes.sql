-- Grain: one row per eligible request of a slice (see eligible_requests): good, bad or unknown.
-- A macro for the other queries, because they all have to mean the same by good: ok, with every
-- objective met. What failed, was shed or never answered is bad. A time per output token that a
-- single token cannot have is no objective of it. unknown is an ok request of which a value is
-- missing and none is too long: nobody knows whether it is good.
-- slo has a limit in microseconds of each latency field, null where it is none of the objectives.
CREATE OR REPLACE TEMP MACRO request_outcomes(units, part, slo) AS TABLE
WITH judged AS (
    SELECT
        run_id,
        request_id,
        arrival_us,
        status,
        -- False where an objective is missed, else null where a value is missing.
        (slo['queue_time_us'] IS NULL OR queue_time_us <= slo['queue_time_us'])
        AND (slo['requeue_time_us'] IS NULL OR requeue_time_us <= slo['requeue_time_us'])
        AND (slo['prefill_time_us'] IS NULL OR prefill_time_us <= slo['prefill_time_us'])
        AND (slo['decode_time_us'] IS NULL OR decode_time_us <= slo['decode_time_us'])
        AND (slo['ttft_us'] IS NULL OR ttft_us <= slo['ttft_us'])
        AND (without_tpot OR slo['tpot_us'] IS NULL OR tpot_us <= slo['tpot_us'])
        AND (slo['e2e_us'] IS NULL OR e2e_us <= slo['e2e_us']) AS met
    FROM eligible_requests(units, part)
)

SELECT
    run_id,
    request_id,
    arrival_us,
    CASE
        WHEN status != 'ok' OR NOT met THEN 'bad'
        WHEN met IS NULL THEN 'unknown'
        ELSE 'good'
    END AS outcome
FROM judged;
