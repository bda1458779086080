"""Which engine the series are of: a run has one, and a selector may fit many. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replay.errors import InputError
from replay.strict import printable

Labels = Mapping[str, str]
# What tells scraped targets, and copies of one server, apart.
IDENTIFYING = ("job", "instance", "pod", "namespace", "cluster", "prometheus", "prometheus_replica")
# What Prometheus usually adds beside it; `up`, where there is one, says exactly.
_USUAL = (*IDENTIFYING, "container", "endpoint", "service", "node")
_EXPORTED = "exported_"
_MOST_CHOICES = 20
_MOST_TEXT = 120


@dataclass(frozen=True)
class Target:
    """`labels` pick its series; `added` are the labels that Prometheus put on them."""

    labels: Labels
    added: frozenset[str]

    def page_labels(self, labels: Labels) -> dict[str, str]:
        """The labels as the page had them: nothing of Prometheus's, and its own names again."""
        found = {k: v for k, v in labels.items() if k not in self.added and k != "__name__"}
        for key in [key for key in found if key.startswith(_EXPORTED)]:
            if (name := key.removeprefix(_EXPORTED)) in self.added:
                found[name] = found.pop(key)
        return found


def only_target(listed: Iterable[Labels]) -> dict[str, str]:
    """Labels of the one target that all series are of; refuses several, naming them."""
    found = {tuple((k, one[k]) for k in IDENTIFYING if k in one) for one in listed}
    if len(found) > 1:
        raise InputError(
            "options",
            "--selector",
            "must leave one engine, for a run is one; pass --instance or add a label of",
            _choices([dict(one) for one in sorted(found)]),
        )
    return dict(found.pop()) if found else {}


def target_of(labels: Labels, ups: Iterable[Labels]) -> Target:
    """The target with these labels; its series of `up`, if there is one, has all that was added."""
    found = [{k: v for k, v in up.items() if k != "__name__"} for up in ups]
    if len({tuple(sorted(up.items())) for up in found}) > 1:
        keys = sorted({key for up in found for key in up})
        differ = [key for key in keys if len({up.get(key) for up in found}) > 1]
        told = ", ".join(printable(key, _MOST_TEXT) for key in differ[:_MOST_CHOICES])
        rule = "must leave one engine; add one of these labels, in which its series of up differ"
        raise InputError("options", "--selector", rule, told)
    added = set(found[0]) if found else set(_USUAL)
    return Target(dict(labels), frozenset(added | set(labels)))


def _choices(found: list[dict[str, str]]) -> str:
    """Targets in a row, by the labels in which they differ."""
    keys = [k for k in IDENTIFYING if len({one.get(k) for one in found}) > 1]
    shown = [
        " ".join(f"{k}={printable(one[k], _MOST_TEXT)}" for k in keys if k in one) or "no label"
        for one in found[:_MOST_CHOICES]
    ]
    more = len(found) - len(shown)
    return f"{len(found)}: " + "; ".join(shown) + (f"; and {more} more" if more else "")
