"""Threads of our own: what runs on them, and what they leave alone."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from reglet.threads import in_shares, memory, shares, single_threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_as_many_shares_as_torch_has_threads_and_one_where_operations_are_watched() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    assert shares(CPU) == 2
    assert shares(torch.device("meta")) == 1
    with FlopCounterMode(display=False):
        assert shares(CPU) == 1


def test_results_come_in_order_whichever_thread_was_first() -> None:
    def work(own: int, of: int) -> tuple[int, int]:
        time.sleep(0.05 * (of - own))
        return own, of

    assert in_shares(work, 3) == [(0, 3), (1, 3), (2, 3)]


def test_an_operation_stays_on_its_thread_and_the_others_keep_theirs() -> None:
    seen = in_shares(lambda own, of: (torch.get_num_threads(), torch.is_grad_enabled(), threading.get_ident()), 2)
    assert [found[:2] for found in seen] == [(1, False)] * 2
    assert torch.get_num_threads() == 2
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [2]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not tell a thread its CPUs")
def test_as_many_threads_as_cpus_have_one_each_and_no_other_thread_is_tied() -> None:
    cpus = os.sched_getaffinity(0)
    together = threading.Barrier(len(cpus))

    def where(own: int, of: int) -> set[int]:
        together.wait()
        return os.sched_getaffinity(0)

    tied = in_shares(where, len(cpus))
    assert sorted(map(sorted, tied)) == [[cpu] for cpu in sorted(cpus)]
    assert os.sched_getaffinity(0) == cpus
    free = in_shares(lambda own, of: os.sched_getaffinity(0), len(cpus) + 1)
    assert free == [cpus] * (len(cpus) + 1)


def test_an_error_on_a_thread_is_raised_here() -> None:
    def work(own: int, of: int) -> None:
        raise ValueError(f"share {own}")

    with pytest.raises(ValueError, match="share 0"):
        in_shares(work, 2)


def test_memory_is_kept_on_our_threads_only() -> None:
    pool = single_threads(1)

    def address(count: int) -> int:
        return memory("a", count, dtype=torch.float32, device=CPU).data_ptr()

    first = pool.submit(address, 100).result()
    assert pool.submit(address, 60).result() == first
    assert pool.submit(lambda: memory("a", 3, 5, dtype=torch.float64, device=CPU).shape).result() == (3, 5)
    kept = memory("a", 10, dtype=torch.float32, device=CPU)
    assert memory("a", 10, dtype=torch.float32, device=CPU).data_ptr() != kept.data_ptr()
    pool.shutdown()


FORKED = """
import os, torch
from reglet.losses import VISReg
torch.set_num_threads(2)
z, loss = torch.randn(2, 32, 8), VISReg(slices=256)
before = loss(z)
loss.slices.step = 0
child = os.fork()
if child == 0:
    torch.set_num_threads(1)  # torch's own threads do not survive a fork either
    os._exit(0 if torch.allclose(loss(z), before) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_does_not_wait_for_threads_that_are_gone() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "0", done.stderr
