-- Grain: one row per ledger_id, run_id, position: what each ledger does not model, in the words of
-- its receipt, and last how it was checked, if not event by event. The sentences belong to every
-- number of that ledger.
CREATE VIEW limitations AS
WITH receipts AS (
    SELECT
        ledger_id,
        run_id,
        CAST(receipt -> '$.limitations' AS VARCHAR[]) || CASE
            WHEN verified = 'columns'
                THEN ['Its events were checked by whole columns when it was loaded, not derived again one by one.']
            ELSE []
        END AS sentences
    FROM modelled_ledgers
)
SELECT
    ledger_id,
    run_id,
    generate_subscripts(sentences, 1) AS position,
    unnest(sentences) AS limitation
FROM receipts
ORDER BY ledger_id, run_id, position;
