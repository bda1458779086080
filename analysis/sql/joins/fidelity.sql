-- Grain: one row per request_id (and measured_engine) of one ledger against one run, which need not
-- be the run its workload came from; columns as in joined_requests. Refusing is the caller's part.
-- Parameters: $ledger_id, $ledger_run_id (null for none), $run_id.
WITH label AS (
    SELECT l.assumed_from, a.arrivals, a.engine
    FROM modelled_ledgers AS l
    LEFT JOIN ledger_arrivals AS a
        ON a.ledger_id = l.ledger_id
        AND a.ledger_run_id IS NOT DISTINCT FROM l.run_id
        AND a.run_id = $run_id
    WHERE l.ledger_id = $ledger_id AND l.run_id IS NOT DISTINCT FROM $ledger_run_id
),
modelled AS (
    SELECT *
    FROM modelled_side
    WHERE ledger_id = $ledger_id AND run_id IS NOT DISTINCT FROM $ledger_run_id
),
measured AS (
    SELECT x.*
    FROM measured_side AS x
    CROSS JOIN label AS b
    WHERE
        x.run_id = $run_id
        AND (b.engine IS NULL OR coalesce(x.measured_engine, b.engine) = b.engine)
)
SELECT
    $ledger_id AS ledger_id,
    $run_id AS run_id,
    coalesce(m.request_id, x.request_id) AS request_id,
    'fidelity' AS join_kind,
    CASE
        WHEN x.request_id IS NULL THEN 'modelled'
        WHEN m.request_id IS NULL THEN 'measured'
        ELSE 'both'
    END AS join_side,
    CAST([] AS VARCHAR[]) AS join_differences,
    b.arrivals AS join_arrivals,
    b.assumed_from AS join_assumed_from,
    m.* EXCLUDE (ledger_id, run_id, request_id),
    x.* EXCLUDE (run_id, request_id)
FROM modelled AS m
FULL JOIN measured AS x ON x.request_id = m.request_id
CROSS JOIN label AS b
ORDER BY request_id, measured_engine;
