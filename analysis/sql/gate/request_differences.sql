-- Grain: one row. Request ids that only one of two runs has.
-- Binds: baseline, candidate (run ids).
WITH sides AS (
    SELECT
        bool_or(run_id = $baseline) AS of_baseline,
        bool_or(run_id = $candidate) AS of_candidate
    FROM measured_requests
    WHERE run_id = $baseline OR run_id = $candidate
    GROUP BY request_id
)
SELECT
    count(*) FILTER (NOT of_candidate) AS only_baseline,
    count(*) FILTER (NOT of_baseline) AS only_candidate
FROM sides
ORDER BY ALL;
