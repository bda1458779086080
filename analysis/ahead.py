"""Work that is one item ahead of whoever uses its results."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(tasks: Iterable[Callable[[], T]]) -> Generator[T, None, None]:
    """Results in order; the next task runs in a thread while one result is used.

    What a task raises comes out where its result would have. Left early, the rest is not begun.
    """
    pool = ThreadPoolExecutor(1)
    running: Future[T] | None = None
    try:
        for task in tasks:
            following = pool.submit(task)
            if running is not None:
                yield running.result()
            running = following
        if running is not None:
            yield running.result()
    finally:
        pool.shutdown(cancel_futures=True)
