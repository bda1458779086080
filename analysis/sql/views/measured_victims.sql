-- Grain: one row per run_id, measured_engine, request_id that the recorder saw preempted,
-- unordered: how often, what it lost, and how long it waited to be resumed: in all, and before its
-- first token, which is part of its TTFT (the rest is part of its TPOT). The wait of one that was
-- never resumed is in no sum. Null where the recording does not hold both ends of the waits.
CREATE VIEW measured_victims AS
WITH victims AS (
    SELECT
        run_id,
        engine,
        request_id,
        count(*) FILTER (WHERE kind = 'preempt') AS preempts,
        count(*) FILTER (WHERE kind = 'resume') AS resumes,
        CAST(sum(computed_tokens) FILTER (WHERE kind = 'preempt') AS BIGINT) AS lost_tokens,
        min(generated_tokens) FILTER (WHERE kind = 'preempt') = 0 AS early,
        max(seq) FILTER (WHERE kind = 'preempt') AS last_preempt,
        max(time_us) FILTER (WHERE kind = 'preempt') AS last_preempt_us,
        max(seq) FILTER (WHERE kind = 'resume') AS last_resume,
        sum(CASE kind WHEN 'resume' THEN time_us ELSE -time_us END) AS wait_us
    FROM measured_events
    WHERE kind IN ('preempt', 'resume')
    GROUP BY run_id, engine, request_id
),
-- Adding up is much faster than pairing, and comes to the same where each has its resume.
waits AS (
    SELECT
        *,
        CASE
            WHEN resumes = preempts AND last_preempt < last_resume THEN wait_us
            WHEN resumes = preempts - 1 AND last_preempt > coalesce(last_resume, -1)
                THEN wait_us + last_preempt_us
        END AS known_us
    FROM victims
    WHERE preempts > 0
),
moves AS (
    SELECT
        e.run_id,
        e.engine,
        e.request_id,
        e.generated_tokens,
        e.time_us,
        lead(e.time_us) OVER (PARTITION BY e.run_id, e.engine, e.request_id ORDER BY e.seq)
            AS resume_us
    FROM measured_events AS e
    SEMI JOIN victims AS v
        ON v.early
        AND v.run_id = e.run_id
        AND v.engine = e.engine
        AND v.request_id = e.request_id
    WHERE e.kind IN ('preempt', 'resume')
),
early AS (
    SELECT run_id, engine, request_id, sum(resume_us - time_us) AS wait_us
    FROM moves
    WHERE generated_tokens = 0
    GROUP BY run_id, engine, request_id
)
SELECT
    w.run_id,
    w.engine AS measured_engine,
    w.request_id,
    w.preempts AS measured_preempt_events,
    w.resumes AS measured_resume_events,
    w.lost_tokens AS measured_lost_tokens,
    CAST(w.known_us AS BIGINT) AS measured_wait_us,
    CASE WHEN w.known_us IS NOT NULL THEN CAST(coalesce(e.wait_us, 0) AS BIGINT) END
        AS measured_wait_before_first_token_us
FROM waits AS w
LEFT JOIN early AS e
    ON w.early AND e.run_id = w.run_id AND e.engine = w.engine AND e.request_id = w.request_id;
