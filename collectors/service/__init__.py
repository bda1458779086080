"""Many engines, each collected into runs of its own, by one process that is left running.

`settings` reads the file; `discover` finds the engines of its targets, `names` gives each a place;
`supervise` keeps one collector an engine; `housekeeping` lets old runs go; `meters` and `status`
say how it goes, and `service` is the process.
"""
