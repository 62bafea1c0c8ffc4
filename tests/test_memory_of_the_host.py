"""Freed memory is used again, and large tensors are ordinary ones."""

import mmap
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from reglet import huge_pages
from reglet.freed_memory import LARGEST, keep_freed_memory

LINUX = sys.platform.startswith("linux") and hasattr(mmap, "MADV_HUGEPAGE")
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
LARGE_PAGES = LINUX and THP.exists() and "[never]" not in THP.read_text()


PROGRAM = """
import ctypes, sys
from reglet.freed_memory import keep_freed_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena chunks a mapped_chunks mapped b c d free end".split()]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.mallinfo2.restype = Info
if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = libc.mallinfo2().mapped_chunks
blocks = [libc.malloc(16 << 20) for _ in range(10)]
print(libc.mallinfo2().mapped_chunks - before)
for block in reversed(blocks):
    libc.free(block)
print(libc.mallinfo2().free >> 20)
"""


def blocks_and_what_is_kept_of_them(how: str) -> list[int]:
    """Ten blocks of 16 MB: how many are pages of their own, and the megabytes that the process has after freeing."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(not LINUX, reason="glibc")
def test_freed_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(key, raising=False)
    mapped, kept = blocks_and_what_is_kept_of_them("keep")
    assert mapped == 0
    assert kept >= 160
    mapped, kept = blocks_and_what_is_kept_of_them("as it is")
    assert mapped == 10
    assert kept < 100


@pytest.mark.parametrize("key", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD"])
def test_the_user_has_a_say(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(key, "something")
    assert not keep_freed_memory()


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()


def test_a_large_tensor_is_an_ordinary_one() -> None:
    n = LARGEST // 4 + 1024
    x = huge_pages.empty(2, n // 2, dtype=torch.float32, device=torch.device("cpu"))
    assert x.shape == (2, n // 2)
    assert x.is_contiguous()
    x.fill_(1)
    part = x[1]
    del x  # the memory lives as long as a view of it
    assert part.sum() == n // 2
    assert part.requires_grad_().square().sum().item() == n // 2


@pytest.mark.skipif(not LARGE_PAGES, reason="this kernel gives no pages of 2 MB")
def test_a_large_tensor_costs_few_page_faults() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    huge_pages.empty(LARGEST // 2, dtype=torch.float32, device=torch.device("cpu")).fill_(1)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < 2 * LARGEST / mmap.PAGESIZE / 10  # one for each page of 4 kB, otherwise


def test_a_kernel_without_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError

    monkeypatch.setattr(mmap, "mmap", Refusing)
    x = huge_pages.empty(LARGEST // 4 + 1, dtype=torch.float32, device=torch.device("cpu"))
    assert x.shape == (LARGEST // 4 + 1,)
