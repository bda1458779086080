-- Grain: one row per ledger_id, ledger_run_id, run_id, field in which a ledger and a run differ, for
-- every ledger against every run, unordered: filter it. Fields are named as in the manifest,
-- [engine] and [policy]; unknown on either side is a difference. vLLM V1 recomputes and picks its
-- own victim. A build's suffix (0.32.0+cpu) is no other release. A rule that was assumed for the
-- run's own release is no difference: whether it holds is what fidelity asks. An option that the
-- release did not have yet (replay/rules.py) is not unknown: the release does as without it.
-- calibration.*: what the durations of a timed ledger rest on, unless they are of this very run.
CREATE VIEW all_differences AS
WITH releases AS (
    SELECT
        *,
        list_transform(
            string_split(regexp_extract(engine_version, '^\d+\.\d+\.\d+'), '.'),
            lambda part: TRY_CAST(part AS INTEGER)
        ) AS release
    FROM measured_runs
),
compared AS (
    SELECT
        l.ledger_id,
        l.run_id AS ledger_run_id,
        r.run_id,
        unnest([
            {
                'field': 'engine.version',
                'modelled_value': l.rule,
                'measured_value': r.engine_name || '-'
                    || regexp_replace(r.engine_version, '^(\d+\.\d+\.\d+)\+[A-Za-z0-9.]+$', '\1')
            },
            {
                -- The clock's arrivals go with any tick, an engine's steps are counted one by one.
                'field': 'engine.tick_us',
                'modelled_value': coalesce(CAST(l.tick_us AS VARCHAR), 'timed'),
                'measured_value': CASE
                    WHEN a.arrivals = 'steps' THEN '1'
                    ELSE coalesce(CAST(l.tick_us AS VARCHAR), 'timed')
                END
            },
            {
                -- A replay of what reached one engine is that engine's, however many there were.
                'field': 'parallel.data',
                'modelled_value': CASE
                    WHEN a.engine IS NULL THEN '1' ELSE CAST(r.parallel_data AS VARCHAR)
                END,
                'measured_value': CAST(r.parallel_data AS VARCHAR)
            },
            {
                'field': 'parallel.pipeline',
                'modelled_value': '1',
                'measured_value': CAST(r.parallel_pipeline AS VARCHAR)
            },
            {
                'field': 'cache.block_size',
                'modelled_value': CAST(l.block_size AS VARCHAR),
                'measured_value': CAST(r.cache_block_size AS VARCHAR)
            },
            {
                'field': 'cache.capacity_blocks',
                'modelled_value': CAST(l.capacity_blocks AS VARCHAR),
                'measured_value': CAST(r.cache_capacity_blocks AS VARCHAR)
            },
            {
                'field': 'cache.enable_prefix_caching',
                'modelled_value': CAST(l.enable_prefix_caching AS VARCHAR),
                'measured_value': CAST(r.cache_enable_prefix_caching AS VARCHAR)
            },
            {
                'field': 'cache.kv_bytes_per_token',
                'modelled_value': CAST(l.kv_bytes_per_token AS VARCHAR),
                'measured_value': CAST(r.cache_kv_bytes_per_token AS VARCHAR)
            },
            {
                'field': 'scheduler.scheduling_policy',
                'modelled_value': l.scheduling_policy,
                'measured_value': coalesce(
                    r.scheduler_scheduling_policy,
                    CASE WHEN r.release < [0, 9, 2] THEN 'fcfs' END
                )
            },
            {
                'field': 'scheduler.max_num_seqs',
                'modelled_value': CAST(l.max_num_seqs AS VARCHAR),
                'measured_value': CAST(r.scheduler_max_num_seqs AS VARCHAR)
            },
            {
                'field': 'scheduler.max_num_batched_tokens',
                'modelled_value': CAST(l.max_num_batched_tokens AS VARCHAR),
                'measured_value': CAST(r.scheduler_max_num_batched_tokens AS VARCHAR)
            },
            {
                'field': 'scheduler.max_model_len',
                'modelled_value': CAST(l.max_model_len AS VARCHAR),
                'measured_value': CAST(r.scheduler_max_model_len AS VARCHAR)
            },
            {
                'field': 'scheduler.enable_chunked_prefill',
                'modelled_value': CAST(l.enable_chunked_prefill AS VARCHAR),
                'measured_value': CAST(r.scheduler_enable_chunked_prefill AS VARCHAR)
            },
            {
                'field': 'scheduler.scheduler_reserve_full_isl',
                'modelled_value': CAST(l.scheduler_reserve_full_isl AS VARCHAR),
                'measured_value': coalesce(
                    CAST(r.scheduler_scheduler_reserve_full_isl AS VARCHAR),
                    CASE WHEN r.release < [0, 19, 0] THEN 'false' END
                )
            },
            {
                'field': 'scheduler.watermark',
                'modelled_value': CAST(l.watermark AS VARCHAR),
                'measured_value': coalesce(
                    CAST(r.scheduler_watermark AS VARCHAR),
                    CASE WHEN r.release < [0, 24, 0] THEN '0.0' END
                )
            },
            {
                'field': 'scheduler.long_prefill_token_threshold',
                'modelled_value': CAST(l.long_prefill_token_threshold AS VARCHAR),
                'measured_value': CAST(r.scheduler_long_prefill_token_threshold AS VARCHAR)
            },
            {
                'field': 'scheduler.async_scheduling',
                'modelled_value': CAST(l.async_scheduling AS VARCHAR),
                'measured_value': coalesce(
                    CAST(r.scheduler_async_scheduling AS VARCHAR),
                    CASE WHEN r.release < [0, 10, 0] THEN 'false' END
                )
            },
            {
                'field': 'workload.workload_sha256',
                'modelled_value': l.workload_sha256,
                -- A run's requests have several hashes (measured_workloads); one has to be shown.
                'measured_value': CASE
                    WHEN a.arrivals IS NOT NULL THEN l.workload_sha256
                    ELSE coalesce(r.offered_workload_sha256, r.run_workload_sha256)
                END
            },
            {
                'field': 'policy.recovery',
                'modelled_value': l.recovery,
                'measured_value': CASE r.engine_name WHEN 'vllm' THEN 'recompute' END
            },
            {
                'field': 'policy.victim',
                'modelled_value': l.victim,
                'measured_value': CASE r.engine_name WHEN 'vllm' THEN 'rule' END
            }
        ], recursive := true)
    FROM modelled_ledgers AS l
    CROSS JOIN releases AS r
    LEFT JOIN ledger_arrivals AS a
        ON a.ledger_id = l.ledger_id
        AND a.ledger_run_id IS NOT DISTINCT FROM l.run_id
        AND a.run_id = r.run_id
),
fitted AS (
    SELECT
        ledger_id,
        run_id,
        receipt,
        calibration_run_id,
        unnest(list_distinct(list_concat(
            json_keys(receipt, '$.timing.calibration.conditions'),
            ['engine.version', 'model.name', 'device.name']
        ))) AS condition
    FROM modelled_ledgers
    WHERE calibration_run_id IS NOT NULL
),
conditions AS (
    SELECT
        f.ledger_id,
        f.run_id AS ledger_run_id,
        r.run_id,
        'calibration.' || f.condition AS field,
        json_extract_string(f.receipt, '$.timing.calibration.conditions."' || f.condition || '"')
            AS modelled_value,
        json_extract_string(r.manifest, '$.' || f.condition) AS measured_value
    FROM fitted AS f
    JOIN measured_runs AS r ON r.run_id <> f.calibration_run_id
)
SELECT ledger_id, ledger_run_id, run_id, field, modelled_value, measured_value
FROM (SELECT * FROM compared UNION ALL BY NAME SELECT * FROM conditions)
WHERE modelled_value IS NULL OR measured_value IS NULL OR modelled_value <> measured_value;
