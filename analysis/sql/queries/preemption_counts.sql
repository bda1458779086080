-- Grain: one row per ledger_id, run_id.
-- How many preemptions did the replay and the real engine have, and how many requests had any?
-- Only requests on both sides are counted; join_kind says whether the counts should agree.
SELECT
    ledger_id,
    run_id,
    join_kind,
    join_differences,
    count(*) AS joined_requests,
    CAST(sum(modelled_preemptions) AS BIGINT) AS modelled_preemptions,
    CAST(sum(measured_num_preemptions) AS BIGINT) AS measured_preemptions,
    count(*) FILTER (WHERE modelled_preemptions > 0) AS modelled_preempted_requests,
    count(*) FILTER (WHERE measured_num_preemptions > 0) AS measured_preempted_requests
FROM joined_requests
WHERE join_side = 'both'
GROUP BY ledger_id, run_id, join_kind, join_differences
ORDER BY ledger_id, run_id;
