-- Grain: one row per ledger_id, run_id, modelled_episode.
-- When did pressure start in the replay, and when did it end?
-- Preemptions less than 5 s of modelled time after each other are one episode (a tick counts with
-- its declared length). modelled_start_us and modelled_end_us are of a timed replay, null in any
-- other: ticks are not time.
WITH moments AS (
    -- Five seconds at a time first: no episode ends within them, and there are far fewer.
    SELECT
        ledger_id,
        run_id,
        min(tick) AS first_tick,
        max(tick) AS last_tick,
        min(time_us) AS first_us,
        max(time_us) AS last_us,
        count(*) AS preemptions,
        sum(freed_blocks) AS freed_blocks,
        max(queue_depth) AS queue_depth
    FROM modelled_events
    WHERE kind = 'preempt'
    GROUP BY ledger_id, run_id, time_us // 5000000
),
gaps AS (
    SELECT *, coalesce(first_us - lag(last_us) OVER ledger > 5000000, true) AS begins
    FROM moments
    WINDOW ledger AS (PARTITION BY ledger_id, run_id ORDER BY first_us)
),
numbered AS (
    SELECT *, CAST(sum(CAST(begins AS INTEGER)) OVER ledger AS BIGINT) AS episode
    FROM gaps
    WINDOW ledger AS (PARTITION BY ledger_id, run_id ORDER BY first_us)
)
SELECT
    n.ledger_id,
    n.run_id,
    n.episode AS modelled_episode,
    min(n.first_tick) AS modelled_start_tick,
    max(n.last_tick) AS modelled_end_tick,
    CASE WHEN l.tick_us IS NULL THEN min(n.first_us) END AS modelled_start_us,
    CASE WHEN l.tick_us IS NULL THEN max(n.last_us) END AS modelled_end_us,
    CAST(sum(n.preemptions) AS BIGINT) AS modelled_preemptions,
    CAST(sum(n.freed_blocks) AS BIGINT) AS modelled_freed_blocks,
    max(n.queue_depth) AS modelled_most_queue_depth
FROM numbered AS n
JOIN modelled_ledgers AS l
    ON l.ledger_id = n.ledger_id AND l.run_id IS NOT DISTINCT FROM n.run_id
GROUP BY n.ledger_id, n.run_id, n.episode, l.tick_us
ORDER BY n.ledger_id, n.run_id, n.episode;
