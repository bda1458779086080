"""The names of the victim rules: the profile's own, and the what-ifs that vllm-v1 offers.

The functions are the schedulers'; this is what a configuration, `--help` and a report call them.
"""

from collections.abc import Mapping

DESCRIPTIONS: Mapping[str, str] = {
    "rule": "The profile's own rule; in vllm-v1 what the engine does.",
    "least-computed": (
        "What-if: the running request with the least computed tokens, the last of equals."
    ),
    "most-freed-per-lost-token": (
        "What-if: the running request that frees the most blocks for each computed token it"
        " loses, the last of equals."
    ),
}
VICTIMS = tuple(DESCRIPTIONS)
PROFILE_VICTIMS: Mapping[str, tuple[str, ...]] = {"lab": ("rule",), "vllm-v1": VICTIMS}
