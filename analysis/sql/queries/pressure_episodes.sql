-- Grain: one row per run_id, measured_source, measured_engine, measured_model, measured_labels,
-- measured_episode.
-- When did pressure start on the real engine, and when did it end?
-- Preemptions less than 5 s after each other are one episode, by the recorder and by the engine's
-- own counter. It began between measured_start_from_us and measured_start_to_us; by the counter,
-- which moves when a victim next emits a token, possibly earlier, and not later.
SELECT *
FROM pressure_episodes
ORDER BY
    run_id, measured_source, measured_engine, measured_model, measured_labels, measured_episode;
