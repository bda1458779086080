-- Grain: one row per ledger_id, run_id, request_id (and measured_engine, where data-parallel engines
-- used an id twice), unordered. Every request of a ledger beside the same request of the run its
-- workload came from; ledgers without such a run, or whose run is not loaded, have no row.
-- join_side says where the request was: both, modelled (only in the ledger) or measured (only in
-- the run, e.g. outside the replayed window); the other side's columns are null, never zero. A
-- replay of what reached one engine has that engine's rows beside it. join_arrivals: time or steps
-- (ledger_arrivals), null where the ledger replayed other requests, or not all. join_assumed_from:
-- the checked rule that stood in for the ledger's own.
CREATE VIEW joined_requests AS
WITH differing AS (
    SELECT ledger_id, run_id, list(field ORDER BY field) AS fields
    FROM join_differences
    GROUP BY ledger_id, run_id
),
pairs AS MATERIALIZED (
    SELECT
        -- A number is a smaller key to join millions of requests by than two names.
        row_number() OVER () AS pair,
        l.ledger_id,
        l.run_id,
        CASE WHEN d.fields IS NULL THEN 'fidelity' ELSE 'what-if' END AS join_kind,
        coalesce(d.fields, []) AS join_differences,
        a.arrivals AS join_arrivals,
        l.assumed_from AS join_assumed_from,
        a.engine
    FROM modelled_ledgers AS l
    JOIN measured_runs AS r ON r.run_id = l.run_id
    LEFT JOIN differing AS d ON d.ledger_id = l.ledger_id AND d.run_id = l.run_id
    LEFT JOIN ledger_arrivals AS a
        ON a.ledger_id = l.ledger_id AND a.ledger_run_id = l.run_id AND a.run_id = l.run_id
),
modelled AS NOT MATERIALIZED (
    SELECT p.pair, m.* EXCLUDE (ledger_id, run_id)
    FROM pairs AS p
    JOIN modelled_side AS m ON m.ledger_id = p.ledger_id AND m.run_id = p.run_id
),
measured AS NOT MATERIALIZED (
    SELECT p.pair, x.* EXCLUDE (run_id)
    FROM pairs AS p
    JOIN measured_side AS x ON x.run_id = p.run_id
    WHERE p.engine IS NULL OR coalesce(x.measured_engine, p.engine) = p.engine
),
sides AS NOT MATERIALIZED (
    SELECT
        coalesce(m.pair, x.pair) AS pair,
        coalesce(m.request_id, x.request_id) AS request_id,
        CASE WHEN x.pair IS NULL THEN 'modelled' WHEN m.pair IS NULL THEN 'measured' ELSE 'both' END
            AS join_side,
        m.* EXCLUDE (pair, request_id),
        x.* EXCLUDE (pair, request_id)
    FROM modelled AS m
    FULL JOIN measured AS x ON x.pair = m.pair AND x.request_id = m.request_id
)
SELECT
    p.ledger_id,
    p.run_id,
    s.request_id,
    p.join_kind,
    s.join_side,
    p.join_differences,
    p.join_arrivals,
    p.join_assumed_from,
    s.* EXCLUDE (pair, request_id, join_side)
FROM pairs AS p
JOIN sides AS s ON s.pair = p.pair;
