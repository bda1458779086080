"""Replays a workload through a declared preemption policy and writes an event ledger.

`run.replay` is the whole way: `fit` refuses, `lab` or `vllm_v1` schedules, `receipt` sums up,
`oracle` checks. That core is data in, data out; reading and writing is in `strict`, `parquet`,
`output`, `workload_file` and `ledger`. This package imports neither of the others.
"""
