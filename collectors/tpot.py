"""The one definition of TPOT (SPEC §9), whoever saw the tokens: the client or the engine."""


def tpot_us(first_us: int | None, last_us: int | None, tokens: int | None) -> int | None:
    """Time per output token after the first, to the nearest microsecond; None below two tokens."""
    if first_us is None or last_us is None or tokens is None or tokens < 2:  # noqa: PLR2004
        return None
    gaps = tokens - 1
    return (2 * (last_us - first_us) + gaps) // (2 * gaps)
