-- Grain: one row. Request ids that only one of two runs has.
-- Binds: baseline, candidate (run ids).
WITH
b AS (SELECT DISTINCT request_id FROM measured_requests WHERE run_id = $baseline),
c AS (SELECT DISTINCT request_id FROM measured_requests WHERE run_id = $candidate)
SELECT
    count(*) FILTER (c.request_id IS NULL) AS only_baseline,
    count(*) FILTER (b.request_id IS NULL) AS only_candidate
FROM b
FULL JOIN c ON b.request_id = c.request_id
ORDER BY ALL;
