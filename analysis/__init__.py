"""Joins what was modelled to what was measured, and asks it questions.

`store` holds ledgers and runs as typed tables in one DuckDB file that can always be rebuilt, `join`
compares them, `query` and `named` read them. Imports the contracts of `replay` and
`collectors.run`, never a simulator. Malformed input raises `replay.errors.InputError`, everything
else that can go wrong an error of `analysis.errors`.
"""
