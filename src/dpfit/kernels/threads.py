"""Blocks of a pass on several threads.

Compiled loops release the interpreter lock, so that Python's own threads run them side by side; who
computes a block has no influence on what it holds. The environment variable ``NUMBA_NUM_THREADS``
says how many there are (joblib sets it in its workers). Unlike numba's parallel loops, these
survive a fork, and they compile in less than half the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Any

_SHARES, _SHARE = 16, 2**19
"""Parts of the work for each thread: one that starts late gets fewer of them. And how many entries
a part should have,
since to begin one takes a few microseconds."""


THREADED = 2**16
"""Waking a thread costs about as much as reading so many entries."""


def n_threads() -> int:
    """The number of threads of a pass."""
    from numba import config

    return int(getattr(config, "NUMBA_NUM_THREADS", 1))


def spread(loop: Callable[..., None], blocks: int, work: int, *arguments: Any) -> None:
    """Call ``loop(first, last, *arguments)`` for all blocks; `work` is the entries to read.

    >>> from collections import deque
    >>> done = deque()
    >>> spread(lambda first, last: done.extend(range(first, last)), 10, 10**9)
    >>> sorted(done) == list(range(10))
    True
    """
    threads = min(n_threads(), blocks)
    if threads == 1 or work < THREADED:
        loop(0, blocks, *arguments)
        return
    shares = min(blocks, _SHARES * threads, max(threads, work // _SHARE))
    cuts = [share * blocks // shares for share in range(shares + 1)]
    # Whoever is free takes the next part; the threads that call and those that are called work
    # alike.
    parts = iter(list(pairwise(cuts)))

    def work_on() -> None:
        while (part := next(parts, None)) is not None:
            loop(*part, *arguments)

    pool = _pool(os.getpid(), threads - 1)
    futures = [pool.submit(work_on) for _ in range(threads - 1)]
    try:
        work_on()
    finally:
        for future in futures:
            future.result()


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> Executor:
    """The threads of a process: a child that was forked has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dpfit")


class _Limit:
    """The limit on the threads of BLAS, and how many passes hold it."""

    lock = Lock()
    holders = 0
    limiter: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS compute in the thread that calls it; the last one to leave restores its threads.

    The threads of BLAS wait by spinning: beside those of `spread`, or on a busy machine, products
    of small matrices take several times as long.
    """
    with _Limit.lock:
        if not _Limit.holders:
            _Limit.limiter = _controller().limit(limits=1, user_api="blas")
        _Limit.holders += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.holders -= 1
            if not _Limit.holders:
                _Limit.limiter.restore_original_limits()


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
