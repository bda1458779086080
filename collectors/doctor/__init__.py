"""A first look at a host: what is there, what can be collected from it, and what to do next.

`look` and `spooled` read, `diagnose` and `now` decide without reading anything, `show` words it.
"""
