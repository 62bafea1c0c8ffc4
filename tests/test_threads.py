"""Threads of our own: what runs on them, and what they leave alone."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from reglet.losses.cpu_slices import _pool, on_threads, serves, threads
from reglet.losses.epps_pulley import EppsPulley
from reglet.threads import single_threads


@pytest.fixture(autouse=True)
def two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_as_many_as_torch_has_and_none_where_operations_are_watched() -> None:
    z = torch.zeros(2, 3, 4)
    assert threads() == 2
    assert serves(z, EppsPulley())
    assert not serves(z.to("meta"), EppsPulley())
    assert not serves(z, lambda p: p.sum())
    with FlopCounterMode(display=False):
        assert not serves(z, EppsPulley())


def test_results_come_in_order_whichever_thread_was_first() -> None:
    def work(own: int, of: int) -> tuple[int, int]:
        time.sleep(0.05 * (of - own))
        return own, of

    assert on_threads(work, 3) == [(0, 3), (1, 3), (2, 3)]


def test_an_operation_stays_on_its_thread_and_the_others_keep_theirs() -> None:
    seen = on_threads(lambda own, of: (torch.get_num_threads(), torch.is_grad_enabled(), threading.get_ident()), 2)
    assert [found[:2] for found in seen] == [(1, False)] * 2
    assert torch.get_num_threads() == 2
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [2]


def test_single_threads_compute_alone() -> None:
    with single_threads(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 1
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not tell a thread its CPUs")
def test_as_many_threads_as_cpus_have_one_each_and_no_other_thread_is_tied() -> None:
    cpus = os.sched_getaffinity(0)
    together = threading.Barrier(len(cpus))

    def where(own: int, of: int) -> set[int]:
        together.wait()
        return os.sched_getaffinity(0)

    tied = on_threads(where, len(cpus))
    assert sorted(map(sorted, tied)) == [[cpu] for cpu in sorted(cpus)]
    assert os.sched_getaffinity(0) == cpus
    free = on_threads(lambda own, of: os.sched_getaffinity(0), len(cpus) + 1)
    assert free == [cpus] * (len(cpus) + 1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not tell a thread its CPUs")
def test_a_sandbox_that_forbids_to_choose_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    count = len(os.sched_getaffinity(0))
    _pool.cache_clear()
    try:
        assert on_threads(lambda own, of: own, count) == list(range(count))
    finally:
        _pool.cache_clear()


def test_an_error_on_a_thread_is_raised_here() -> None:
    def work(own: int, of: int) -> None:
        raise ValueError(f"share {own}")

    with pytest.raises(ValueError, match="share 0"):
        on_threads(work, 2)


WINDOWS = """
import os
import torch
torch.set_num_threads(2)
del os.register_at_fork, os.sched_getaffinity, os.sched_setaffinity
import reglet
print(float(reglet.VISReg(slices=2048)(torch.randn(2, 256, 8))) > 0)
"""


def test_a_system_without_fork_and_affinity() -> None:
    done = subprocess.run([sys.executable, "-c", WINDOWS], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "True", done.stderr
