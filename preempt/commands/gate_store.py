"""The runs that a gate's command is given, in a store to ask."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def evidence(
    path: Path | None,
    baseline: Sequence[str],
    candidate: Sequence[str],
    *,
    joined: bool = False,
) -> Iterator[tuple[Any, tuple[Sequence[str], Sequence[str]]]]:
    """A store with the runs and both sides' run ids: a file as it is, or directories in memory.

    Only what is `joined` to ledgers has to know its workload's hash, which takes longest.
    """
    from analysis import store

    if path is not None:
        with store.connect(path, read_only=True) as db:
            yield db, (baseline, candidate)
        return
    from collectors.run import read_run

    loaded: dict[Path, str] = {}
    with store.connect(None) as db:
        for name in (*baseline, *candidate):
            place = Path(name).resolve()
            if place not in loaded:
                run = read_run(Path(name))
                store.load_run(db, run, workloads=joined)
                loaded[place] = run.run_id
        yield (
            db,
            (
                [loaded[Path(name).resolve()] for name in baseline],
                [loaded[Path(name).resolve()] for name in candidate],
            ),
        )
