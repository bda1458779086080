"""Rollout gates: whether a change of one engine option may go live, given runs of both sides.

`gate_file` reads what is asked, `comparability` decides whether the runs may be compared at all,
`predicates` judge them one kind at a time, `verdict` says what it comes to. `run.evaluate` puts
them together. Predicates are pure; the rows they judge come from `analysis/sql/gate/*.sql`.
"""
