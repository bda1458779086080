"""What can go wrong in a replay, and the one wording every input fault has.

ReplayError                root; carries the exit code a command ends with
├── InputError             a file or option breaks a rule (also a ValueError): exit 2
├── OutputExists           the output path is taken and --force was not given: exit 2
└── Unfinished             requests were left at `max_ticks` and censoring was not allowed: exit 1
"""

from decimal import Decimal

MAX_DIGITS = 30
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class ReplayError(Exception):
    """Root of this package's errors; `exit_code` is what a command ends with."""

    exit_code = 2


class InputError(ReplayError, ValueError):
    """One fault in one input: where, which field, which rule, what was found.

    The text of a message is `place: field rule, got found`. Text values never appear in it, only
    their kind and length (`describe`), because a trace may hold a secret anywhere.
    """

    def __init__(self, place: str, field: str, rule: str, found: str | None = None) -> None:
        self.place, self.field, self.rule, self.found = place, field, rule, found
        what = f"{field} {rule}" if field else rule
        super().__init__(f"{place}: {what}" + (f", got {found}" if found else ""))


class OutputExists(ReplayError):
    """The output path is taken; nothing was written."""


class Unfinished(ReplayError):
    """The replay reached `max_ticks` with requests left; nothing was written."""

    exit_code = 1


def describe(value: object) -> str:
    """Say what was found: numbers and constants as they are, of text only its kind and length."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            # A long integer has too many digits to convert just to count them.
            digits = int(value.bit_length() * 0.30103) + 1
            return str(value) if digits <= MAX_DIGITS else str(Oversized(digits))
        case float() | Decimal():
            return _NOT_FINITE.get(repr(float(value)), repr(float(value)))
        case str() if any("\ud800" <= c <= "\udfff" for c in value):
            return f"a string of {_code_points(value)} with a lone surrogate"
        case str():
            return f"a string of {_code_points(value)}"
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return f"an object of {len(value)} key{'s' * (len(value) != 1)}"
        case Oversized():
            return str(value)
    return f"a {type(value).__name__}"


def _code_points(text: str) -> str:
    return f"{len(text)} code point{'s' * (len(text) != 1)}"


def is_interrupt(error: BaseException) -> bool:
    """Whether this is what became of Ctrl-C on its way, which is no error of its own.

    DuckDB makes a plain error of it, and Python up to 3.11 one of what is raised while a class is
    made, as in an import.
    """
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, KeyboardInterrupt):
            return True
        if type(at) is RuntimeError and str(at) == "Query interrupted":
            return True
        at = at.__cause__ or at.__context__
    return False


class Oversized:
    """Stands for an integer too long to convert; only about how many digits it has is known."""

    def __init__(self, digits: int) -> None:
        self.digits = digits

    def __str__(self) -> str:
        return f"an integer of {self.digits} digits"
