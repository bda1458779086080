"""Brings measured data in: runs of a real engine, public traces, result files.

`run` is the contract that everything measured is read through; `columns` and `manifest` are its
two halves. This package imports only the contracts of `replay` (`errors`, `strict`, `canonical`,
`workload`, `workload_file`) and nothing of `analysis`.
"""
