"""Comparisons: both sides driven in turn, by one client, with one workload a pair."""
