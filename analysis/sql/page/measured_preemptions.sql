-- Grain: one row per preempt event, at most most_rows: those that lost most computed tokens first.
-- What survives (prompt and generated tokens), which blocks leave, and what has to be computed again;
-- wait_us is until the same request is resumed, null where it never was.
-- Binds: run_ids, most_rows.
WITH
places AS (
    SELECT unnest($run_ids::VARCHAR[]) AS run_id, unnest(range(len($run_ids))) AS place
),

events AS (
    SELECT
        p.place,
        e.*,
        lead(e.time_us) OVER turn AS next_us,
        lead(e.kind) OVER turn AS next_kind
    FROM places AS p
    INNER JOIN measured_events AS e ON p.run_id = e.run_id
    WINDOW turn AS (PARTITION BY p.place, e.engine, e.request_id ORDER BY e.seq)
)

SELECT
    place,
    engine,
    seq,
    time_us,
    request_id,
    context_tokens - generated_tokens AS prompt_tokens,
    generated_tokens,
    computed_tokens,
    freed_blocks,
    free_blocks_before,
    CASE WHEN next_kind = 'resume' THEN next_us - time_us END AS wait_us,
    count(*) OVER () AS total
FROM events
WHERE kind = 'preempt'
ORDER BY computed_tokens DESC NULLS LAST, place, engine, seq
LIMIT $most_rows;
