-- Grain: one row per ledger_id, run_id, unordered: how many requests each fairness predicate flagged.
CREATE VIEW flagged_requests AS
SELECT
    ledger_id,
    run_id,
    count(*) FILTER (WHERE flagged_wait) AS modelled_flagged_wait_requests,
    count(*) FILTER (WHERE flagged_repeat) AS modelled_flagged_repeat_requests
FROM modelled_requests
GROUP BY ledger_id, run_id;
