"""Threads on which an operation of torch stays on the thread that calls it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch


def single_threads(count: int) -> ThreadPoolExecutor:
    """`count` threads that compute alone.

    Otherwise every thread that calls torch gets helpers of its own.  They wait for work by spinning, on the cores that
    the others compute on.

    torch.set_num_threads holds for the thread that calls it and for those that begin later.  So the threads begin, set
    themselves to one, and the last line sets the later ones right.
    """
    before, ready = torch.get_num_threads(), Barrier(count)
    pool = ThreadPoolExecutor(count, "reglet", initializer=_alone)
    list(pool.map(lambda _: ready.wait(), range(count)))
    torch.set_num_threads(before)
    return pool


def _alone() -> None:
    torch.get_num_threads()  # a thread's first call sets it to the common number: so it comes before our own
    torch.set_num_threads(1)
