-- Grain: one row per ledger_id, run_id, position: where a vllm-v1 ledger leaves what vLLM does, in
-- the words of its receipt. A ledger without such rows, unless it is the lab's, leaves it nowhere.
CREATE VIEW what_ifs AS
WITH receipts AS (
    SELECT ledger_id, run_id, CAST(receipt -> '$.what_ifs' AS VARCHAR[]) AS sentences
    FROM modelled_ledgers
)
SELECT
    ledger_id,
    run_id,
    generate_subscripts(sentences, 1) AS position,
    unnest(sentences) AS what_if
FROM receipts
ORDER BY ledger_id, run_id, position;
