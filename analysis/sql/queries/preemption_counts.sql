-- Grain: one row per ledger_id, run_id.
-- How many preemptions did the replay and the real engine have, and how many requests had any?
-- Only requests on both sides are counted; measured numbers are null where nobody counted for one
-- that reached the engine. Under fidelity, with arrivals in the engine's own steps, an exact model
-- preempts every request as often as the engine did.
WITH joined AS (
    SELECT
        *,
        measured_num_preemptions IS NULL
        AND measured_status NOT IN ('unsent', 'rejected') AS uncounted
    FROM joined_requests
    WHERE join_side = 'both'
)
SELECT
    ledger_id,
    run_id,
    join_kind,
    join_differences,
    join_arrivals,
    join_assumed_from,
    count(*) AS joined_requests,
    CAST(sum(modelled_preemptions) AS BIGINT) AS modelled_preemptions,
    CASE WHEN NOT bool_or(uncounted) THEN CAST(sum(measured_num_preemptions) AS BIGINT) END
        AS measured_preemptions,
    CASE
        WHEN NOT bool_or(uncounted)
            THEN count(*) FILTER (WHERE modelled_preemptions = measured_num_preemptions)
    END AS joined_requests_of_equal_preemptions,
    count(*) FILTER (WHERE modelled_preemptions > 0) AS modelled_preempted_requests,
    CASE
        WHEN NOT bool_or(uncounted) THEN count(*) FILTER (WHERE measured_num_preemptions > 0)
    END AS measured_preempted_requests
FROM joined
GROUP BY ALL
ORDER BY ledger_id, run_id;
