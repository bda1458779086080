-- Grain: one row per ledger and bucket of ticks; at most about most_points of a ledger. A ledger is
-- shown if it was given or models one of the runs. The fullest, the most active and queued after
-- any event of the bucket, and its preemptions. Ticks are modelled and are no time on a clock.
-- Binds: run_ids, ledger_ids, most_points, most_ledgers.
WITH
ledgers AS (
    SELECT
        ledger_id,
        any_value(run_id ORDER BY run_id) AS run_id,
        any_value(profile || ' ' || rule || ', recovery ' || recovery) AS model
    FROM modelled_ledgers
    WHERE list_contains($ledger_ids, ledger_id) OR list_contains($run_ids, run_id)
    GROUP BY ledger_id
    ORDER BY ledger_id
    LIMIT $most_ledgers
),

events AS (
    SELECT
        l.model,
        e.*,
        1 + max(e.tick) OVER (PARTITION BY e.ledger_id) // $most_points AS width
    FROM ledgers AS l
    INNER JOIN modelled_events AS e
        ON l.ledger_id = e.ledger_id AND l.run_id IS NOT DISTINCT FROM e.run_id
)

SELECT
    ledger_id,
    model,
    width,
    tick // width * width AS tick,
    max(occupied_blocks_after / capacity_blocks) AS kv_cache_usage_frac,
    max(active_requests) AS running,
    max(queue_depth) AS waiting,
    count(*) FILTER (kind = 'preempt') AS preemptions
FROM events
GROUP BY ledger_id, model, width, events.tick // width * width
ORDER BY ledger_id, 4;
