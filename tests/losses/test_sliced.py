"""Sliced losses in unusual company: flushed denormals, eval, fake tensors, checkpoints, other devices, threads."""

import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from tests.contracts import PLAIN_ROWS, Row, directions, expected
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from reglet import SIGReg, VISReg
from reglet.losses import cpu_slices, sliced, wasserstein
from reglet.losses.slices import Given
from reglet.losses.wasserstein import ToQuantiles, normal_quantiles

SLICED = [row for row in PLAIN_ROWS if row.sliced]
every_sliced = pytest.mark.parametrize("row", SLICED, ids=lambda row: row.name)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def value_and_gradient(loss: nn.Module, z: Tensor) -> tuple[Tensor, Tensor]:
    leaf = z.clone().requires_grad_()
    value = loss(leaf)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def assert_as_the_formula(row: Row, z: Tensor) -> None:
    value, grad = value_and_gradient(row.build(), z)
    leaf = z.double().requires_grad_()
    want = torch.stack(list(expected(row, row.build(), leaf.float() if z.dtype == torch.float32 else leaf).values()))
    torch.testing.assert_close(value.double(), want.sum().detach(), rtol=1e-5, atol=1e-7)
    assert torch.isfinite(grad).all()


# the sort


@pytest.fixture
def flushed() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    yield
    torch.set_flush_denormal(False)


@every_sliced
@pytest.mark.parametrize("zeros", [2, 16])
def test_flushed_denormals_change_nothing(row: Row, zeros: int, flushed: None) -> None:
    """Two rows of zeros, and exact collapse."""
    z = randn(2, 16, 8)
    z[:, :zeros] = 0
    assert_as_the_formula(row, z)


@pytest.mark.parametrize("flush", [False, True])
def test_the_tagged_sort_orders_every_float(flush: bool, request: pytest.FixtureRequest) -> None:
    """Both zeros, denormals, infinities and NaN, as the order of their bits has them; also where denormals are 0."""
    bits = torch.randint(-(2**31), 2**31 - 1, (3, 2, 500), generator=torch.Generator().manual_seed(0)).int()
    p = bits.view(torch.float32).clone()
    p[0, 0, :8] = torch.tensor([0.0, -0.0, 1e-45, -1e-45, torch.inf, -torch.inf, torch.nan, 3e38])
    _ = flush and request.getfixturevalue("flushed")
    order = cpu_slices._TaggedSort(p)(p)
    torch.set_flush_denormal(False)
    assert torch.equal(order.sort(dim=-1).values, torch.arange(500).expand_as(order)), "each index once"
    numbers = ~p.isnan()
    for line, found, known in zip(p.flatten(0, 1), order.flatten(0, 1), numbers.flatten(0, 1), strict=True):
        ordered = line[found][known[found]]
        assert torch.equal(ordered, line[known].sort().values)


# eval


@every_sliced
def test_eval_has_slices_of_its_own_and_leaves_training_alone(row: Row) -> None:
    z = randn(2, 16, 8)
    loss, other = row.build(), row.build()
    first = loss(z)
    loss.eval()
    seen = [loss(z) for _ in range(3)]
    assert all(torch.equal(value, seen[0]) for value in seen), "fixed"
    assert torch.equal(row.build().eval()(z), seen[0]), "wherever training stands"
    assert not torch.equal(seen[0], first)
    loss.train()
    assert torch.equal(first, other(z))
    assert torch.equal(loss(z), other(z)), "a validation pass changed the slices of training"


@every_sliced
def test_eval_is_the_formula_on_its_own_slices(row: Row) -> None:
    z = randn(2, 16, 8).double()
    loss = row.build().eval()
    want = torch.stack(list(expected(row, loss, z).values())).sum()
    torch.testing.assert_close(loss(z), want, rtol=1e-10, atol=0)


# fake tensors, the meta device, counters


@every_sliced
def test_fake_tensors_leave_no_trace(row: Row) -> None:
    """A size that no other test uses, so that nothing is known before."""
    z = randn(2, 19, 7)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(z).requires_grad_()
        value = row.build()(fake)
        value.backward()
        assert value.shape == ()
        assert fake.grad.shape == z.shape
    assert_as_the_formula(row, z)


@every_sliced
def test_meta_as_the_default_device(row: Row) -> None:
    z = randn(2, 18, 7)
    wasserstein._known_quantiles.cache_clear()  # so that what is kept is made under it
    torch.set_default_device("meta")
    try:
        got = value_and_gradient(row.build(), z)
    finally:
        torch.set_default_device(None)
    want = value_and_gradient(row.build(), z)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_a_counter_sees_the_products_of_the_formula() -> None:
    """Three products of n x d x k: projections, and twice for the gradient by the plain path; two are needed."""
    v, n, d, k = 2, 8, 6, 128
    z = randn(v, n, d).requires_grad_()
    for build in (VISReg, SIGReg):
        with FlopCounterMode(display=False) as counter:
            build(slices=k)(z).backward()
        assert counter.get_total_flops() == 2 * (2 * v * n * d * k)


# every device


@every_sliced
def test_other_devices_compute_the_same_without_what_serves_the_cpu(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    z = randn(3, 40, 9)
    want = value_and_gradient(row.build(), z)

    def met(*_: object) -> None:
        raise AssertionError("only the CPU may come here")

    monkeypatch.setattr(cpu_slices, "serves", lambda *_: False)
    for name in ("value_and_gradient", "on_threads", "_pool"):
        monkeypatch.setattr(cpu_slices, name, met)
    for budget in (1 << 28, 1 << 18):  # all slices at a time, and a few
        monkeypatch.setattr(sliced, "BUDGET", budget)
        got = value_and_gradient(row.build(), z)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-4, atol=1e-7)  # nearly equal projections may change places


def test_a_chunk_is_sized_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def loss(p: Tensor) -> Tensor:
        seen.append(p.numel() * p.element_size())
        return p.square().sum()

    z, w = randn(2, 50, 4), randn(1000, 4)
    sliced.value_and_gradient(z, Given(w), loss)
    assert seen == [1000 * 100 * 4], "all at once, where there is room"
    monkeypatch.setattr(sliced, "BUDGET", 1 << 21)
    seen.clear()
    sliced.value_and_gradient(z, Given(w), loss)
    assert max(seen) <= (1 << 21) / sliced.COPIES


# checkpoints


def deep(loss: nn.Module, z: Tensor) -> Tensor:
    """A loss inside of a checkpoint, with something after it whose gradient needs the loss's value."""
    return loss(torch.tanh(z)).square()


@every_sliced
@pytest.mark.parametrize("early_stop", [True, False])
def test_checkpointing_recomputes_on_the_same_slices(row: Row, early_stop: bool) -> None:
    """Two micro-batches a step: both forward passes, then both backward passes."""
    plain, saved = row.build(), row.build()
    for step in range(3):
        parts = [randn(2, 12, 6, seed=2 * step + i).requires_grad_() for i in range(2)]
        others = [z.detach().clone().requires_grad_() for z in parts]
        want = [deep(plain, z) for z in parts]
        with torch.utils.checkpoint.set_checkpoint_early_stop(early_stop):
            got = [checkpoint(deep, saved, z, use_reentrant=False) for z in others]
        sum(want).backward()
        sum(got).backward()
        for a, b, z, other in zip(got, want, others, parts, strict=True):
            assert torch.equal(a, b)
            torch.testing.assert_close(z.grad, other.grad, rtol=1e-6, atol=1e-9)
    assert saved.slices.step == plain.slices.step == 6


@every_sliced
def test_recomputed_calls_are_told_apart_whatever_they_see(row: Row) -> None:
    """The same numbers in every call, two calls in a checkpoint, backward passes in another order, one of them twice:
    nothing but the place of a call says which slices it had."""

    def two(loss: nn.Module, z: Tensor) -> Tensor:
        return deep(loss, z) * deep(loss, z)

    plain, saved = row.build(), row.build()
    z = randn(2, 12, 6)
    parts, others = ([z.clone().requires_grad_() for _ in range(3)] for _ in range(2))
    want = [two(plain, part) for part in parts]
    got = [checkpoint(two, saved, other, use_reentrant=False) for other in others]
    assert len({value.item() for value in want}) == 3, "otherwise the slices would not matter"
    for i in (1, 2, 0, 1):
        want[i].backward(retain_graph=True)
        got[i].backward(retain_graph=True)
    for value, other, part, its in zip(got, want, others, parts, strict=True):
        assert torch.equal(value, other)
        torch.testing.assert_close(part.grad, its.grad, rtol=1e-6, atol=1e-9)
    assert saved.slices.step == plain.slices.step == 6


def test_hooks_that_only_move_saved_tensors_change_nothing() -> None:
    plain, moved = SIGReg(slices=8), SIGReg(slices=8)
    for step in range(3):
        z = randn(2, 12, 6, seed=step)
        with torch.autograd.graph.save_on_cpu():
            assert torch.equal(moved(z.clone().requires_grad_()), plain(z))
    assert moved.slices.step == 3


def test_what_cannot_be_recomputed_is_refused() -> None:
    z = randn(2, 12, 6).requires_grad_()
    value = checkpoint(deep, SIGReg(slices=8), z, use_reentrant=True)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        value.backward()


@pytest.mark.parametrize("early_stop", [True, False])
def test_nested_checkpoints_are_right_or_refused(early_stop: bool) -> None:
    """Without early stop the outer one runs the inner one again, as a new checkpoint of which nothing is known."""
    plain, saved = SIGReg(slices=8), SIGReg(slices=8)
    z, other = (randn(2, 12, 6).requires_grad_() for _ in range(2))
    (deep(plain, z) + deep(plain, z)).backward()
    with torch.utils.checkpoint.set_checkpoint_early_stop(early_stop):
        nested = lambda z: checkpoint(deep, saved, z, use_reentrant=False)  # noqa: E731
        value = sum(checkpoint(nested, other, use_reentrant=False) for _ in range(2))
    if early_stop:
        value.backward()
        torch.testing.assert_close(other.grad, z.grad, rtol=1e-6, atol=1e-9)
    else:
        with pytest.raises(RuntimeError, match="not nested"):
            value.backward()


# threads


def test_threads_change_no_more_than_the_order_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 and float64; more threads than blocks of slices."""
    monkeypatch.setattr(cpu_slices, "WORTHWHILE", 0)
    used: list[int] = []
    threaded = cpu_slices.on_threads
    monkeypatch.setattr(cpu_slices, "on_threads", lambda work, of: used.append(of) or threaded(work, of))
    before = torch.get_num_threads()
    try:
        for dtype, close in ((torch.float32, 1e-4), (torch.float64, 1e-12)):
            z = randn(2, 40, 9).to(dtype)
            for row in SLICED:
                found = []
                for threads in (1, 3):
                    torch.set_num_threads(threads)
                    found.append(value_and_gradient(row.build(), z))
                for a, b in zip(*found, strict=True):
                    torch.testing.assert_close(a, b, rtol=close, atol=1e-9)
    finally:
        torch.set_num_threads(before)
    assert set(used) == {1, 3}


FORKED = """
import os, torch
from reglet.losses import VISReg, cpu_slices
torch.set_num_threads(2)
z, loss = torch.randn(2, 256, 16), VISReg(slices=2048).eval()
before = loss(z)
assert cpu_slices._pool.cache_info().currsize == 1, "this size is no test: no threads were used"
child = os.fork()
if child == 0:
    torch.set_num_threads(2)
    inside = cpu_slices.value_and_gradient(z, loss.slices.at(-1, z), cpu_slices.ToQuantiles(torch.zeros(256)))
    os._exit(0 if cpu_slices._pool.cache_info().currsize == 1 and inside[0].isfinite() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_does_not_wait_for_threads_that_are_gone() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "0", done.stderr


def test_nothing_large_is_kept_after_a_call() -> None:
    """What a call on many samples needs, it gives back.  No tensor of its size is left."""
    import gc

    def large() -> list[Tensor]:
        gc.collect()
        return [x for x in gc.get_objects() if type(x) is Tensor and x.numel() >= 100_000]

    z, loss = randn(2, 20_000, 4), VISReg(slices=130)
    others = large()  # z, and what other tests of this process keep
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        loss(z)
    finally:
        torch.set_num_threads(before)
    assert {id(x) for x in large()} <= {id(x) for x in others}


RESIDENT = """
import torch
from reglet.losses.cpu_slices import value_and_gradient
from reglet.losses.slices import Slices
from reglet.losses.wasserstein import ToQuantiles, normal_quantiles

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

torch.set_num_threads(2)
z, slices = torch.zeros(2, 20_000, 128).normal_(), Slices(256, shared=True)
loss = ToQuantiles(normal_quantiles(20_000, like=z))
value_and_gradient(z[:, :1000], slices.at(0, z), ToQuantiles(normal_quantiles(1000, like=z)))
before = resident()
for step in range(3):
    value_and_gradient(z, slices.at(step, z), loss)
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="reads /proc, and is about glibc's memory of threads")
def test_threads_give_back_what_a_large_batch_needed() -> None:
    """glibc keeps for a thread what that thread frees.  So large memory is made outside of the threads."""
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, timeout=300, check=True)
    assert float(done.stdout) < 60  # the gradient has 20 MiB, and may stay; of what threads need, little does


def test_quantiles_in_half_precision_are_finite() -> None:
    q = normal_quantiles(4096, like=torch.zeros((), dtype=torch.bfloat16))
    assert q.dtype == torch.bfloat16
    assert torch.isfinite(q).all()
    assert ToQuantiles(q.float())(torch.zeros(1, 1, 4096)) > 0.9


def test_directions_helper_matches_what_is_used() -> None:
    """The tests' own helper: the step of training, or that of evaluation."""
    loss = VISReg(slices=5)
    z = randn(2, 4, 3)
    training = directions(loss, z)
    assert not torch.equal(training, directions(loss.eval(), z))
