-- Grain: one row per run_id: which engine, configured how, was offered what. The manifest's fields
-- with underscores for dots, null where unknown; the last five columns are derived.
CREATE TABLE measured_runs (
    schema VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL PRIMARY KEY,
    kind VARCHAR NOT NULL,
    privacy VARCHAR,
    note VARCHAR,
    engine_name VARCHAR NOT NULL,
    engine_version VARCHAR,
    model_name VARCHAR,
    model_note VARCHAR,
    device_kind VARCHAR,
    device_name VARCHAR,
    device_count BIGINT,
    device_driver VARCHAR,
    parallel_tensor BIGINT,
    parallel_pipeline BIGINT,
    parallel_data BIGINT,
    cache_block_size BIGINT,
    cache_num_gpu_blocks BIGINT,
    cache_capacity_blocks BIGINT,
    cache_dtype VARCHAR,
    cache_enable_prefix_caching BOOLEAN,
    cache_num_gpu_blocks_overridden BOOLEAN,
    cache_kv_cache_memory_bytes BIGINT,
    cache_kv_bytes_per_token BIGINT,
    scheduler_scheduling_policy VARCHAR,
    scheduler_max_num_seqs BIGINT,
    scheduler_max_num_batched_tokens BIGINT,
    scheduler_max_model_len BIGINT,
    scheduler_async_scheduling BOOLEAN,
    scheduler_enable_chunked_prefill BOOLEAN,
    scheduler_scheduler_reserve_full_isl BOOLEAN,
    scheduler_watermark DOUBLE,
    scheduler_long_prefill_token_threshold BIGINT,
    scrape_interval_us BIGINT,
    scrapes BIGINT,
    metric_names JSON,
    metric_names_not_found JSON,
    start TIMESTAMP,
    send_end_us BIGINT,
    drain_end_us BIGINT,
    gaps JSON,
    counter_resets JSON,
    workload_workload_sha256 VARCHAR,
    workload_requests BIGINT,
    workload_prefix_block_tokens BIGINT,
    workload_note VARCHAR,
    comparison_side VARCHAR,
    comparison_pair BIGINT,
    comparison_order BIGINT,
    comparison_arrival_seed BIGINT,
    comparison_own_server BOOLEAN,
    clocks_arrival VARCHAR,
    clocks_engine VARCHAR,
    clocks_scrape VARCHAR,
    collection_outcomes JSON,
    collection_problems JSON,
    collection_page_bytes BIGINT,
    collection_first_parts JSON,
    collection_several_workers BOOLEAN,
    collection_notes JSON,
    recorder_version VARCHAR,
    recorder_engines JSON,
    recorder_dropped_records BIGINT,
    recorder_complete BOOLEAN,
    recorder_sources JSON,
    recorder_notes JSON,
    driver_behind BOOLEAN,
    driver_late_requests BIGINT,
    driver_lateness_limit_us BIGINT,
    driver_max_lateness_us BIGINT,
    driver_speed DOUBLE,
    driver_concurrency BIGINT,
    driver_token_seed BIGINT,
    driver_notes JSON,
    not_modelled JSON,
    preemptions BIGINT,
    imported_format VARCHAR,
    imported_tool_version VARCHAR,
    imported_definitions_ttft VARCHAR,
    imported_definitions_tpot VARCHAR,
    imported_definitions_itl VARCHAR,
    imported_definitions_e2e VARCHAR,
    imported_left_out JSON,
    collector_version VARCHAR,
    configuration_sha256 VARCHAR,
    offered_requests BIGINT,
    offered_workload_sha256 VARCHAR,
    run_workload_sha256 VARCHAR,
    manifest_sha256 VARCHAR NOT NULL,
    manifest JSON NOT NULL
);
COMMENT ON TABLE measured_runs IS 'One row per run_id: the manifest of each run, flattened.';
COMMENT ON COLUMN measured_runs.schema IS 'Name and version of this contract.';
COMMENT ON COLUMN measured_runs.run_id IS 'Name of the run, the same in every row of its tables.';
COMMENT ON COLUMN measured_runs.kind IS 'driven: the workload was offered by this project''s driver. observed: traffic from elsewhere.';
COMMENT ON COLUMN measured_runs.privacy IS 'raw: private to its host. shareable: made by sanitize. Absent or null: raw.';
COMMENT ON COLUMN measured_runs.note IS 'For people; nothing reads it.';
COMMENT ON COLUMN measured_runs.engine_name IS 'Name of the engine, e.g. vllm.';
COMMENT ON COLUMN measured_runs.engine_version IS 'Its version as /version gives it.';
COMMENT ON COLUMN measured_runs.model_name IS 'Served model name; in a raw run it can be a path.';
COMMENT ON COLUMN measured_runs.model_note IS 'For people; nothing reads it.';
COMMENT ON COLUMN measured_runs.device_kind IS 'cpu, cuda, rocm, … in vLLM''s words.';
COMMENT ON COLUMN measured_runs.device_name IS 'Device name as the driver or the operating system gives it.';
COMMENT ON COLUMN measured_runs.device_count IS 'Devices used by the engine.';
COMMENT ON COLUMN measured_runs.device_driver IS 'Driver version; null on a CPU, which has none.';
COMMENT ON COLUMN measured_runs.parallel_tensor IS 'Tensor parallel size.';
COMMENT ON COLUMN measured_runs.parallel_pipeline IS 'Pipeline parallel size.';
COMMENT ON COLUMN measured_runs.parallel_data IS 'Data parallel size: the number of engines, each with its own steps and block pool.';
COMMENT ON COLUMN measured_runs.cache_block_size IS 'Tokens of one block.';
COMMENT ON COLUMN measured_runs.cache_num_gpu_blocks IS 'Blocks as vLLM counts them, its null block included.';
COMMENT ON COLUMN measured_runs.cache_capacity_blocks IS 'Usable blocks, always num_gpu_blocks - 1.';
COMMENT ON COLUMN measured_runs.cache_dtype IS 'Cache dtype as vLLM names it, e.g. auto.';
COMMENT ON COLUMN measured_runs.cache_enable_prefix_caching IS 'Whether prefix caching was on.';
COMMENT ON COLUMN measured_runs.cache_num_gpu_blocks_overridden IS 'Whether num_gpu_blocks was set by hand instead of measured.';
COMMENT ON COLUMN measured_runs.cache_kv_cache_memory_bytes IS 'Memory given to the KV cache, in bytes.';
COMMENT ON COLUMN measured_runs.cache_kv_bytes_per_token IS 'Bytes of KV of one token, from the model''s shape and dtype, or as memory over tokens when the blocks were not overridden.';
COMMENT ON COLUMN measured_runs.scheduler_scheduling_policy IS 'fcfs or priority.';
COMMENT ON COLUMN measured_runs.scheduler_max_num_seqs IS 'Most requests running at once.';
COMMENT ON COLUMN measured_runs.scheduler_max_num_batched_tokens IS 'Token budget of one step.';
COMMENT ON COLUMN measured_runs.scheduler_max_model_len IS 'Longest context, in tokens.';
COMMENT ON COLUMN measured_runs.scheduler_async_scheduling IS 'Whether the next step is scheduled before the last one''s output is processed.';
COMMENT ON COLUMN measured_runs.scheduler_enable_chunked_prefill IS 'Whether a prompt may be prefilled over several steps.';
COMMENT ON COLUMN measured_runs.scheduler_scheduler_reserve_full_isl IS 'Whether admission needs room for the whole known sequence.';
COMMENT ON COLUMN measured_runs.scheduler_watermark IS 'Fraction of blocks kept free at admission.';
COMMENT ON COLUMN measured_runs.scheduler_long_prefill_token_threshold IS 'Longest prefill chunk of one request in a step, in tokens; 0: unlimited.';
COMMENT ON COLUMN measured_runs.scrape_interval_us IS 'Collection interval: intended time between two scrapes of /metrics, in microseconds.';
COMMENT ON COLUMN measured_runs.scrapes IS 'Scrapes that were stored.';
COMMENT ON COLUMN measured_runs.metric_names IS 'The metric-name map used: canonical name to the name on this engine''s page.';
COMMENT ON COLUMN measured_runs.metric_names_not_found IS 'Canonical names that no scrape had.';
COMMENT ON COLUMN measured_runs.start IS 'Zero of the run''s times, UTC; null in a shareable run.';
COMMENT ON COLUMN measured_runs.send_end_us IS 'When the last request was sent, in microseconds after the start.';
COMMENT ON COLUMN measured_runs.drain_end_us IS 'When observation ended, in microseconds after the start.';
COMMENT ON COLUMN measured_runs.gaps IS 'Times without the scrapes there should have been; empty: none, null: nobody looked.';
COMMENT ON COLUMN measured_runs.counter_resets IS 'Counters that fell or were created anew; empty: none, null: nobody looked.';
COMMENT ON COLUMN measured_runs.workload_workload_sha256 IS 'Hash of the offered workload''s text form.';
COMMENT ON COLUMN measured_runs.workload_requests IS 'Requests offered.';
COMMENT ON COLUMN measured_runs.workload_prefix_block_tokens IS 'Tokens that one entry of prefix_blocks stands for; absent or null: no prefix sharing recorded.';
COMMENT ON COLUMN measured_runs.workload_note IS 'For people; nothing reads it.';
COMMENT ON COLUMN measured_runs.comparison_side IS 'baseline or candidate.';
COMMENT ON COLUMN measured_runs.comparison_pair IS 'Which pair, from 0.';
COMMENT ON COLUMN measured_runs.comparison_order IS 'Place in the order the comparison''s runs were made in, from 0.';
COMMENT ON COLUMN measured_runs.comparison_arrival_seed IS 'Seed of the arrivals; null where they are a trace''s own.';
COMMENT ON COLUMN measured_runs.comparison_own_server IS 'Whether a server was started for this run alone; false: it ran for others, too.';
COMMENT ON COLUMN measured_runs.clocks_arrival IS 'Clock of arrivals.';
COMMENT ON COLUMN measured_runs.clocks_engine IS 'Clock of engine marks.';
COMMENT ON COLUMN measured_runs.clocks_scrape IS 'Clock of scrapes.';
COMMENT ON COLUMN measured_runs.collection_outcomes IS 'Scrapes by their outcome.';
COMMENT ON COLUMN measured_runs.collection_problems IS 'Faults found inside pages, by kind.';
COMMENT ON COLUMN measured_runs.collection_page_bytes IS 'Bytes of exposition text received, decompressed.';
COMMENT ON COLUMN measured_runs.collection_first_parts IS 'By directory, the number of the first part that is left after retention deleted older ones; absent: 0.';
COMMENT ON COLUMN measured_runs.collection_several_workers IS 'Whether counters rose and fell as behind several workers; null: nobody looked.';
COMMENT ON COLUMN measured_runs.collection_notes IS 'What else should be known, in the collector''s words.';
COMMENT ON COLUMN measured_runs.recorder_version IS 'Version of the recorder.';
COMMENT ON COLUMN measured_runs.recorder_engines IS 'Data-parallel indexes that recorded.';
COMMENT ON COLUMN measured_runs.recorder_dropped_records IS 'Records that found no room in the buffer or on the disk.';
COMMENT ON COLUMN measured_runs.recorder_complete IS 'Whether every recorder ended properly: a killed engine''s last moment is missing.';
COMMENT ON COLUMN measured_runs.recorder_sources IS 'Where columns come from in this release, or why they are absent.';
COMMENT ON COLUMN measured_runs.recorder_notes IS 'What else should be known, in the collector''s words.';
COMMENT ON COLUMN measured_runs.driver_behind IS 'Whether the client fell behind its schedule: latencies then include its own backlog.';
COMMENT ON COLUMN measured_runs.driver_late_requests IS 'Requests sent later than the limit.';
COMMENT ON COLUMN measured_runs.driver_lateness_limit_us IS 'What counts as late.';
COMMENT ON COLUMN measured_runs.driver_max_lateness_us IS 'Latest send after its intended time.';
COMMENT ON COLUMN measured_runs.driver_speed IS 'Factor by which arrivals were sped up.';
COMMENT ON COLUMN measured_runs.driver_concurrency IS 'Most requests in flight, where the driver limits them.';
COMMENT ON COLUMN measured_runs.driver_token_seed IS 'Seed of the prompts'' tokens.';
COMMENT ON COLUMN measured_runs.driver_notes IS 'What else should be known, in the driver''s words.';
COMMENT ON COLUMN measured_runs.not_modelled IS 'What this engine does that a replay does not model; empty: none seen, null: nobody looked.';
COMMENT ON COLUMN measured_runs.preemptions IS 'Preempt events seen: a summary, the events are the evidence.';
COMMENT ON COLUMN measured_runs.imported_format IS 'FORMAT of preempt import.';
COMMENT ON COLUMN measured_runs.imported_tool_version IS 'Version of the tool, if its file says it.';
COMMENT ON COLUMN measured_runs.imported_definitions_ttft IS 'Time to first token.';
COMMENT ON COLUMN measured_runs.imported_definitions_tpot IS 'Time per output token.';
COMMENT ON COLUMN measured_runs.imported_definitions_itl IS 'Inter-token latency.';
COMMENT ON COLUMN measured_runs.imported_definitions_e2e IS 'End-to-end latency.';
COMMENT ON COLUMN measured_runs.imported_left_out IS 'Requests without a row, by reason.';
COMMENT ON COLUMN measured_runs.collector_version IS 'Version of the collector.';
COMMENT ON COLUMN measured_runs.configuration_sha256 IS 'Hash of the engine configuration.';
COMMENT ON COLUMN measured_runs.offered_requests IS 'Requests offered: the manifest''s count, else that of offered.jsonl, else null.';
COMMENT ON COLUMN measured_runs.offered_workload_sha256 IS 'Hash of the offered workload: the manifest''s, else that of offered.jsonl, else null.';
COMMENT ON COLUMN measured_runs.run_workload_sha256 IS 'Hash of the workload that preempt import run makes of the whole run; null where none can be made.';
COMMENT ON COLUMN measured_runs.manifest_sha256 IS 'Hash of the manifest''s canonical JSON.';
COMMENT ON COLUMN measured_runs.manifest IS 'The whole manifest, canonical JSON.';
