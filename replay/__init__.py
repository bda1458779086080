"""Replays a workload through a declared preemption policy and writes an event ledger.

The core (`workload`, `lab`, `recovery`, `events`, `receipt`, `oracle_lab`) is data in, data out;
reading and writing is in `strict`, `parquet`, `output`, `workload_file` and `ledger`. This package
imports neither of the others.
"""
