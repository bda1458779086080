-- Grain: one row per run_id and latency field that some request of the run has.
-- What is null for every request was not recorded there. Binds: run_ids.
WITH fields AS (
    SELECT run_id, unnest([
        CASE WHEN count(queue_time_us) > 0 THEN 'queue_time_us' END,
        CASE WHEN count(requeue_time_us) > 0 THEN 'requeue_time_us' END,
        CASE WHEN count(prefill_time_us) > 0 THEN 'prefill_time_us' END,
        CASE WHEN count(decode_time_us) > 0 THEN 'decode_time_us' END,
        CASE WHEN count(ttft_us) > 0 THEN 'ttft_us' END,
        CASE WHEN count(tpot_us) > 0 THEN 'tpot_us' END,
        CASE WHEN count(e2e_us) > 0 THEN 'e2e_us' END
    ]) AS field
    FROM measured_requests
    WHERE list_contains($run_ids, run_id)
    GROUP BY run_id
)
SELECT run_id, field
FROM fields
WHERE field IS NOT NULL
ORDER BY run_id, field;
