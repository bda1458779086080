"""The `preempt` command: puts collectors, replay and analysis together."""
