"""Replays a workload through a declared preemption policy and writes an event ledger.

The core (`workload`, `config`, `lab`, `events`, `oracle`) is data in, data out; files are touched
only by `workload_file`, `ledger` and the commands. This package imports neither of the others.
"""
