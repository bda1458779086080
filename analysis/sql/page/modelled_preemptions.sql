-- Grain: one row per modelled preempt event, at most most_rows: those charged most first. Of ledgers
-- that were given or model one of the runs.
-- Binds: run_ids, ledger_ids, most_rows.
WITH ledgers AS (
    SELECT ledger_id, any_value(run_id ORDER BY run_id) AS run_id
    FROM modelled_ledgers
    WHERE list_contains($ledger_ids, ledger_id) OR list_contains($run_ids, run_id)
    GROUP BY ledger_id
)

SELECT
    e.ledger_id,
    e.seq,
    e.tick,
    e.request_id,
    e.prompt_tokens,
    e.generated_tokens,
    e.recovery,
    e.recompute_tokens,
    e.swap_in_bytes,
    e.freed_blocks,
    e.capacity_blocks - e.occupied_blocks_before AS free_blocks_before,
    count(*) OVER () AS total
FROM ledgers AS l
INNER JOIN modelled_events AS e
    ON l.ledger_id = e.ledger_id AND l.run_id IS NOT DISTINCT FROM e.run_id
WHERE e.kind = 'preempt'
ORDER BY e.recompute_tokens DESC NULLS LAST, e.swap_in_bytes DESC NULLS LAST, e.ledger_id, e.seq
LIMIT $most_rows;
