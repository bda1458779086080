"""Questions asked often: a file of `sql/queries` each, its grain in the first comment."""

from dataclasses import dataclass

from analysis.errors import QueryError
from analysis.sqlfiles import first_comment, names, sql
from replay.strict import printable


@dataclass(frozen=True)
class NamedQuery:
    """One question: a row stands for one `grain`, together they answer `question`."""

    name: str
    grain: str
    question: str
    text: str


def named_queries() -> list[NamedQuery]:
    """All of them, by name."""
    return [_parsed(name) for name in names("queries")]


def named_query(name: str) -> NamedQuery:
    """One of them; `QueryError` if there is none such."""
    if name not in names("queries"):
        raise QueryError(
            f"query: no such name {printable(name)}; preempt sql --named list shows all"
        )
    return _parsed(name)


def _parsed(name: str) -> NamedQuery:
    text = sql("queries", name)
    comment = " ".join(first_comment(text).split())
    grain, _, question = comment.removeprefix("Grain: one row per ").partition(". ")
    return NamedQuery(name, grain, question, text)
