"""A recorder inside vLLM: it notes what the scheduler does and changes nothing.

Only the standard library is imported, and vLLM only where vLLM itself calls in, so that installing
this beside an engine moves no other package.
"""
