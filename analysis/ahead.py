"""Work that is some items ahead of whoever uses its results."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
AT_ONCE = 2


def ahead(tasks: Iterable[Callable[[], T]]) -> Generator[T, None, None]:
    """Results in order; the next two tasks run in threads while one result is used.

    What a task raises comes out where its result would have. Left early, the rest is not begun.
    """
    pool = ThreadPoolExecutor(AT_ONCE)
    begun: deque[Future[T]] = deque()
    try:
        for task in tasks:
            begun.append(pool.submit(task))
            if len(begun) > AT_ONCE:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
