"""Threads of our own beside torch's, on the CPU.

torch gives one operation to all threads, waits, and gives them the next.  A loss over slices is a row of short
operations, and some of them (drawing, sorting) are of one thread only: its threads sleep and are woken as often as they
work.  Slices do not need one another, so `in_shares` has every thread take some of them through all operations alone.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier, local
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

MOST = 16  # Python starts the operations of all threads, one at a time


def shares(device: torch.device) -> int:
    """How many at most: one but on the CPU, where there are as many as torch has threads.

    One also where something watches the operations of this thread, as a counter of FLOPs does.
    """
    watched = torch._C._len_torch_dispatch_stack() > 0
    if device.type != "cpu" or watched or not torch.backends.openmp.is_available():
        return 1
    return min(MOST, torch.get_num_threads())


def in_shares(work: Callable[[int, int], T], of: int) -> list[T]:
    """[work(0, of), ..., work(of - 1, of)], without gradient."""
    if of == 1:
        return [work(0, 1)]
    # Neither grad mode nor autocast of this thread reaches another: there, autocast is off.
    return list(_pool(of).map(torch.no_grad()(work), range(of), [of] * of))


def single_threads(count: int) -> ThreadPoolExecutor:
    """Threads on which an operation of torch stays on the thread that calls it.

    Otherwise every thread that calls torch gets helpers of its own, which wait for work by spinning: on the cores that
    the others compute on.

    torch.set_num_threads holds for the thread that calls it and for those that begin later; the last call sets those
    right.
    """
    before, ready = torch.get_num_threads(), Barrier(count)
    pool = ThreadPoolExecutor(count, "reglet", initializer=_alone)
    list(pool.map(lambda _: ready.wait(), range(count)))
    torch.set_num_threads(before)
    return pool


@lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    """Where there are as many threads as CPUs, each has one of its own.

    Linux puts a thread that is woken beside the one that woke it, and these wake each other with Python's lock: two of
    them waited a fifth of the time for the CPU that the other had, beside one that was idle.
    """
    pool = single_threads(count)
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(cpus) == count:
        together = Barrier(count)

        def settle(cpu: int) -> None:
            together.wait()  # so that no thread takes two
            os.sched_setaffinity(0, {cpu})

        list(pool.map(settle, cpus))
    return pool


def memory(name: str, *shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Uninitialized; on a thread of ours the same from call to call, for a few megabytes of fresh pages cost more than
    sorting them.  To be used under one name once at a time."""
    known: dict[str, Tensor] | None = getattr(_kept, "memory", None)
    if known is None:
        return torch.empty(shape, dtype=dtype, device=device)
    count = math.prod(shape)
    if name not in known or known[name].dtype != dtype or known[name].numel() < count:
        known[name] = torch.empty(count, dtype=dtype)
    return known[name][:count].view(shape)


_kept = local()


def _alone() -> None:
    _kept.memory = {}
    torch.get_num_threads()  # a thread takes over the common number with its first question, even after an own one
    torch.set_num_threads(1)


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not live on in the child
