"""File formats that are read here, each a line in a table until a file of it is read.

Traces and result files differ in what their readers give, and in nothing else.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collectors.traces.result import Source

Found = TypeVar("Found")


@dataclass(frozen=True)
class Format(Generic[Found]):
    """One line on what it reads; its module in `package` waits until something is read.

    `file` is what such a file is called, `about` what else its help says; `origin` marks a format
    of which no whole real file was at hand. `block_tokens` are the tokens of a hash id's chunk
    where the file says nothing else; None: the format has no hash ids.
    """

    package: str
    module: str
    description: str
    file: str
    about: str
    origin: str = ""
    block_tokens: int | None = None

    @property
    def line(self) -> str:
        """What it reads, and the mark."""
        return f"{self.description} {self.origin}".rstrip()

    @property
    def read(self) -> Callable[..., Found]:
        """`read(path, max_requests)` of the format; with hash ids it takes `block_tokens`, too."""
        return cast("Callable[..., Found]", self.reader().read)

    def reader(self) -> ModuleType:
        """The module, imported now."""
        return import_module(f"{self.package}.{self.module}")


def sources(formats: "Iterable[Format[Found]]") -> "dict[str, Source]":
    """What the readers themselves say of the files they read, by title, with every note."""
    return {source.title: source for one in formats for source in one.reader().SOURCES}
