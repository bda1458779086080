-- Grain: one row per (run_id, fault, request_id), at most most_ids of a run's fault. total counts
-- the fault's requests, violating and unknown the run's requests with any fault of that sort.
-- Violations: fell (generated_tokens fell between two events), end_differs (an ok request's last
-- event and its row disagree, or an event shows more than the row), short (an ok request of a
-- driven run did not reach the length it was asked for, and did not stop by itself).
-- Unknown: events_missing (a preempted request without the events that would show it), not_known
-- (a count that the check needs is null), no_row (events of a request that has no row),
-- contradicted (more preempt events than the row admits). A row that names no engine takes events
-- of any.
-- Binds: run_ids, driven_ids (the runs with a forced output length), most_ids.
WITH
marks AS (
    SELECT
        run_id,
        engine,
        request_id,
        seq,
        kind,
        generated_tokens,
        lag(generated_tokens) OVER (
            PARTITION BY run_id, engine, request_id ORDER BY seq
        ) AS before
    FROM measured_events
    WHERE list_contains($run_ids, run_id) AND generated_tokens IS NOT NULL
),

seen AS (
    SELECT
        run_id,
        engine,
        request_id,
        count(*) FILTER (kind = 'preempt') AS preempts,
        count(*) FILTER (kind = 'finish') AS finishes,
        bool_or(generated_tokens < before) AS fell,
        max(generated_tokens) AS greatest,
        arg_max(generated_tokens, seq) AS final
    FROM marks
    GROUP BY run_id, engine, request_id
),

judged AS (
    SELECT
        coalesce(r.run_id, s.run_id) AS run_id,
        coalesce(r.request_id, s.request_id) AS request_id,
        r.request_id IS NULL AS no_row,
        coalesce(s.fell, false) AS fell,
        r.status = 'ok' AND (
            s.greatest > r.generated_tokens
            OR (s.finishes > 0 AND s.final != r.generated_tokens)
        ) AS end_differs,
        r.status = 'ok'
        AND list_contains($driven_ids, r.run_id)
        AND r.finish_reason IS DISTINCT FROM 'stop'
        AND r.generated_tokens < r.max_tokens AS short,
        r.num_preemptions > 0 AND (
            coalesce(s.preempts, 0) < r.num_preemptions
            OR (r.status = 'ok' AND coalesce(s.finishes, 0) = 0)
        ) AS events_missing,
        s.preempts > r.num_preemptions AS contradicted,
        r.status NOT IN ('unsent', 'rejected') AND (
            r.num_preemptions IS NULL
            OR (r.status = 'ok' AND r.generated_tokens IS NULL)
            OR (
                r.status = 'ok'
                AND list_contains($driven_ids, r.run_id)
                AND r.max_tokens IS NULL
            )
        ) AS not_known
    FROM (SELECT * FROM measured_requests WHERE list_contains($run_ids, run_id)) AS r
    FULL JOIN seen AS s
        ON
            r.run_id = s.run_id
            AND r.request_id = s.request_id
            AND coalesce(r.engine, s.engine) = s.engine
),

faulty AS (
    SELECT * FROM judged
    WHERE fell OR end_differs OR short OR events_missing OR not_known OR no_row OR contradicted
),

faults AS (
    SELECT
        run_id,
        request_id,
        unnest([
            CASE WHEN fell THEN 'fell' END,
            CASE WHEN end_differs THEN 'end_differs' END,
            CASE WHEN short THEN 'short' END,
            CASE WHEN events_missing THEN 'events_missing' END,
            CASE WHEN not_known THEN 'not_known' END,
            CASE WHEN no_row THEN 'no_row' END,
            CASE WHEN contradicted THEN 'contradicted' END
        ]) AS fault
    FROM faulty
),

numbers AS (
    SELECT
        run_id,
        count(*) FILTER (fell OR end_differs OR short) AS violating,
        count(*) FILTER (events_missing OR not_known OR no_row OR contradicted) AS unknown
    FROM faulty
    GROUP BY run_id
)

SELECT
    f.run_id,
    f.fault,
    f.request_id,
    count(*) OVER (PARTITION BY f.run_id, f.fault) AS total,
    n.violating,
    n.unknown
FROM faults AS f
INNER JOIN numbers AS n ON f.run_id = n.run_id
WHERE f.fault IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY f.run_id, f.fault ORDER BY f.request_id) <= $most_ids
ORDER BY f.run_id, f.fault, f.request_id;
