"""From the engine's request id back to the client's, by one rule, applied here and nowhere else.

vLLM's API server puts its endpoint's name before a client's id and the prompt's place and a random
suffix behind it; a request for several samples becomes children with their place in front.
"""

import re

# The suffix is eight hexadecimal digits, and absent where an engine was told not to add one.
_COMPLETION = re.compile(
    r"(?:(?P<child>[0-9]+)_)?cmpl-(?P<id>.+?)-(?P<prompt>[0-9]+)(?P<suffix>-[0-9a-f]{8})?",
    re.DOTALL,
)
_CHAT = re.compile(
    r"(?:(?P<child>[0-9]+)_)?chatcmpl-(?P<id>.+?)(?P<suffix>-[0-9a-f]{8})?", re.DOTALL
)
_CHILD = re.compile(r"[0-9]+_")


def client_id(engine_id: str) -> str:
    """The client's id; sample k of n > 1 ends in `#k`, prompt i > 0 of a list in `#pi`.

    Only the API server's completions and chat completions are unwrapped; any other id is kept.
    """
    match = _COMPLETION.fullmatch(engine_id) or _CHAT.fullmatch(engine_id)
    if match is None:
        return engine_id
    parts = match.groupdict()
    prompt = int(parts.get("prompt") or 0)
    place = f"#p{prompt}" if prompt else ""
    child = "" if parts["child"] is None else f"#{int(parts['child'])}"
    return f"{parts['id']}{place}{child}"


def is_child(engine_id: str) -> bool:
    """Whether a request is one of several samples of the same prompt (n > 1)."""
    return _CHILD.match(engine_id) is not None
