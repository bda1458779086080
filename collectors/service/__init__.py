"""Many engines, each collected into runs of its own, by one process that is left running.

`settings` reads the file, `check` tries what it names; `discover` finds the engines of its targets,
`names` gives each a place; `begin` makes a collector, and `supervise` keeps one an engine;
`housekeeping` lets old runs go; `standing` follows how each engine does, `diary` logs what changes,
`meters` and `health` show it, and `service` is the process.
"""
