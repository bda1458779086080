"""How long an engine's steps take: measured in a run, fitted, written as `[timing]` (SPEC §3)."""
