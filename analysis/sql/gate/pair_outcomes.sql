-- Grain: one row: the requests of both runs of a pair, joined by request_id.
-- only_: requests that one run alone has a row of. answered_: status ok. good_: by request_outcomes
-- where by_status is false, and then of requests eligible in both runs; else by status, of all.
-- unknown: eligible on one side alone, or not known to be good or bad.
-- Binds: run_ids (the baseline's, the candidate's), by_status, units and part (see
-- eligible_requests), slo (see request_outcomes).
WITH
outcomes AS (
    SELECT run_id, request_id, outcome
    FROM request_outcomes($units, $part, $slo)
    WHERE NOT $by_status
    UNION ALL
    SELECT run_id, request_id, CASE WHEN status = 'ok' THEN 'good' ELSE 'bad' END AS outcome
    FROM measured_requests
    WHERE $by_status AND list_contains($run_ids, run_id)
),

sides AS (
    SELECT r.run_id, r.request_id, r.status = 'ok' AS answered, o.outcome
    FROM measured_requests AS r
    LEFT JOIN outcomes AS o ON r.run_id = o.run_id AND r.request_id = o.request_id
    WHERE list_contains($run_ids, r.run_id)
),

pairs AS (
    SELECT
        b.request_id IS NOT NULL AS in_baseline,
        c.request_id IS NOT NULL AS in_candidate,
        coalesce(b.answered, false) AS baseline_answered,
        coalesce(c.answered, false) AS candidate_answered,
        coalesce(b.outcome, '') AS baseline_outcome,
        coalesce(c.outcome, '') AS candidate_outcome
    FROM (SELECT * FROM sides WHERE run_id = $run_ids[1]) AS b
    FULL JOIN (SELECT * FROM sides WHERE run_id = $run_ids[2]) AS c ON b.request_id = c.request_id
)

SELECT
    count(*) AS requests,
    count(*) FILTER (NOT in_candidate) AS only_baseline,
    count(*) FILTER (NOT in_baseline) AS only_candidate,
    count(*) FILTER (baseline_answered AND candidate_answered) AS answered_both,
    count(*) FILTER (baseline_answered AND NOT candidate_answered) AS answered_baseline_only,
    count(*) FILTER (candidate_answered AND NOT baseline_answered) AS answered_candidate_only,
    count(*) FILTER (NOT baseline_answered AND NOT candidate_answered) AS answered_neither,
    count(*) FILTER (baseline_outcome = 'good' AND candidate_outcome = 'good') AS good_both,
    count(*) FILTER (baseline_outcome = 'good' AND candidate_outcome = 'bad') AS good_to_bad,
    count(*) FILTER (baseline_outcome = 'bad' AND candidate_outcome = 'good') AS bad_to_good,
    count(*) FILTER (baseline_outcome = 'bad' AND candidate_outcome = 'bad') AS bad_both,
    count(*) FILTER (
        baseline_outcome != candidate_outcome
        AND (baseline_outcome IN ('', 'unknown') OR candidate_outcome IN ('', 'unknown'))
        OR baseline_outcome = 'unknown'
    ) AS unknown
FROM pairs
ORDER BY ALL;
