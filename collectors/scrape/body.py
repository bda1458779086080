"""A response's body out of its encoding, within bounds whatever the server sends."""

import zlib

from collectors.scrape.outcome import Outcome

ENCODINGS = "gzip"
_GZIP, _DEFLATE = 31, 15  # zlib's window bits


class Stopped(Exception):
    """The body cannot be had; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class Body:
    """Collects a body chunk by chunk; never holds more than `most_bytes` of text."""

    def __init__(self, encoding: str | None, most_bytes: int) -> None:
        self.text = bytearray()
        self._most, self._sent = most_bytes, 0
        self._member: zlib._Decompress | None = None
        match (encoding or "").strip().lower():
            case "" | "identity":
                self._bits = None
            case "gzip" | "x-gzip":
                self._bits = _GZIP
            case "deflate":
                self._bits = _DEFLATE
            case _:
                raise Stopped(Outcome.BAD_ENCODING)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes as sent; raises `Stopped` where they are too many or damaged."""
        self._sent += len(chunk)
        if self._sent > self._most:
            raise Stopped(Outcome.TOO_LARGE)
        if self._bits is None:
            self.text += chunk
            return
        while chunk:
            if self._member is None or self._member.eof:
                self._member = zlib.decompressobj(self._bits)
            room = self._most - len(self.text)
            try:
                self.text += self._member.decompress(chunk, room + 1)
            except zlib.error as exc:
                raise Stopped(Outcome.BAD_ENCODING) from exc
            if len(self.text) > self._most:
                raise Stopped(Outcome.TOO_LARGE)
            chunk = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    @property
    def whole(self) -> bool:
        """Whether the encoding ended; a body without one cannot say."""
        return self._bits is None or self._sent == 0 or bool(self._member and self._member.eof)
