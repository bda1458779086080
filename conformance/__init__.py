"""Conformance: this project's `vllm-v1` replay against vLLM's own scheduler class, event by event.

It is part of the checkout and never of what is installed; `README.md` beside it says how to run it.
"""
