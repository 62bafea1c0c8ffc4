"""A process that uses its freed memory again instead of giving it back.

A training step allocates the same sizes as the step before.  glibc's malloc gives large blocks back to the kernel when
they are freed, and the kernel clears every page when it hands it out anew.  On two cores of a virtual machine a step of
the small conv net was 1.8 times as fast without that, and one of a small ViT 1.1 times (benchmarks/freed_memory.py).
"""

import ctypes
import os
import sys

LARGEST = 32 << 20  # bytes; the largest block that glibc can be told to keep
KEPT = 1 << 30  # bytes of free memory at the end of the heap, above which it is given back
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's numbers
_CHOSEN_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory() -> bool:
    """Tell glibc's malloc to keep what this process frees.  Returns whether it does.

    The command `reglet` calls this before it trains.  The library does not, because it changes the whole process: call
    it yourself in a program that trains on the CPU.  Nothing happens, and the answer is False, where malloc is not
    glibc's (macOS, Windows, musl) or where the environment has chosen already.

    >>> keep_freed_memory() in (True, False)
    True
    """
    if not sys.platform.startswith("linux") or any(os.environ.get(key) for key in _CHOSEN_BY_USER):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(*pair) for pair in ((_MMAP_THRESHOLD, LARGEST), (_TRIM_THRESHOLD, KEPT)))
