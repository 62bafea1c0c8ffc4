"""Threads that compute alone: an operation of torch stays on the thread that calls it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch


def single_threads(count: int) -> ThreadPoolExecutor:
    """`count` threads that compute alone.

    Otherwise every thread that calls torch gets its own helper threads.  They spin while they wait, on the cores where
    the others compute.

    torch.set_num_threads acts on the calling thread and on threads that start later.  So our threads start and set
    themselves to one; then the old number is restored for later threads.
    """
    before, ready = torch.get_num_threads(), Barrier(count)
    pool = ThreadPoolExecutor(count, "reglet", initializer=_alone)
    list(pool.map(lambda _: ready.wait(), range(count)))
    torch.set_num_threads(before)
    return pool


def _alone() -> None:
    torch.get_num_threads()  # a thread's first call would overwrite our number with the default
    torch.set_num_threads(1)
