"""Tenants with few requests say who they are; together they do not."""

from collections.abc import Iterable, Mapping, Sequence

from collectors.sanitize.options import Blur
from collectors.sanitize.pseudonyms import RARE_TENANT


def merged_tenants(counts: Sequence[Mapping[str, int]], blur: Blur) -> dict[str, str | None]:
    """What the rare tenants become: all of them one, or none where even that one is too rare.

    `counts`: the requests of each tenant, once for each table that will show tenants. Afterwards a
    table shows a tenant with at least `blur.tenants` requests or not at all. The rarest others join
    where the rare ones alone are too few.
    """
    if not blur.merges_tenants:
        return {}
    least = blur.tenants
    rarest = {
        name: min(count[name] for count in counts if count.get(name))
        for name in sorted(_names(counts), key=str.encode)
    }
    rare: list[str] = []
    for name in sorted(rarest, key=rarest.__getitem__):
        if rarest[name] >= least and _enough(rare, counts, least):
            break
        rare.append(name)
    return dict.fromkeys(rare, RARE_TENANT if _enough(rare, counts, least) else None)


def _names(counts: Iterable[Mapping[str, int]]) -> set[str]:
    return {name for count in counts for name, requests in count.items() if requests}


def _enough(names: Sequence[str], counts: Iterable[Mapping[str, int]], least: int) -> bool:
    """Whether these tenants as one are nowhere rare."""
    sums = (sum(count.get(name, 0) for name in names) for count in counts)
    return all(not requests or requests >= least for requests in sums)
