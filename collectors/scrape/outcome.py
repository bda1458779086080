"""What can become of one scrape: a fixed list, so that counts by outcome mean the same anywhere.

A page without content, a page of another program and a refused page are three different things,
and none of them is an engine in which everything is zero.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What became of a scrape; the value is what the manifest and the metrics say."""

    OK = "ok"
    EMPTY = "empty"  # 200 without content
    NOT_VLLM = "not_vllm"  # a page, but nothing on it is vLLM's
    UNPARSABLE = "unparsable"  # 200 with something that is no exposition
    TRUNCATED = "truncated"  # a page that stops before its end
    TOO_LARGE = "too_large"  # as sent, or once decompressed
    TOO_MANY_SAMPLES = "too_many_samples"  # none of them are taken: half a page says half of it
    BAD_ENCODING = "bad_encoding"  # a Content-Encoding we did not ask for, or not what it says
    REDIRECT = "redirect"  # never followed: it could lead a token elsewhere
    HTTP_401 = "http_401"
    HTTP_403 = "http_403"
    HTTP_404 = "http_404"
    HTTP_4XX = "http_4xx"
    HTTP_500 = "http_500"
    HTTP_503 = "http_503"
    HTTP_5XX = "http_5xx"
    HTTP_OTHER = "http_other"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    DNS = "dns"
    TLS = "tls"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    BAD_HTTP = "bad_http"  # an answer that is not HTTP
    CREDENTIALS = "credentials"  # a token file that cannot be read now


# These have a page that is whole: a better parser may find more on it.
WITH_PAGE = frozenset({Outcome.OK, Outcome.NOT_VLLM, Outcome.UNPARSABLE, Outcome.TOO_MANY_SAMPLES})


_VALUES = frozenset(str(outcome) for outcome in Outcome)


@dataclass(frozen=True)
class Fetched:
    """Answer to one request: `body` is decompressed, None unless its outcome is ok or truncated."""

    outcome: Outcome
    status: int | None = None
    content_type: str | None = None
    body: bytes | None = field(default=None, repr=False)


def outcome_of_status(status: int) -> Outcome:
    """Outcome of a status line; ok only for 200."""
    if status == 200:  # noqa: PLR2004 (the number is its name)
        return Outcome.OK
    if (exact := f"http_{status}") in _VALUES:
        return Outcome(exact)
    by_class = {3: Outcome.REDIRECT, 4: Outcome.HTTP_4XX, 5: Outcome.HTTP_5XX}
    return by_class.get(status // 100, Outcome.HTTP_OTHER)
