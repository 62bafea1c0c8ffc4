"""What can be asked of a loss beyond one backward: numerical checks, forward mode, twice, compiled, copied, stored."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from tests.contracts import PAIR_LOSSES, ROWS, Row, expected
from torch import Tensor, nn
from torch._dynamo.backends.debugging import aot_eager
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def embeddings(v: int = 2, n: int = 6, d: int = 4) -> Tensor:
    g = torch.Generator().manual_seed(0)
    shared, own = torch.randn(n, d, generator=g), torch.randn(v, n, d, generator=g)
    return (shared + 0.5 * own).double()


def total(terms: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(terms.values())).sum()


@every_row
def test_gradcheck(row: Row) -> None:
    """A stopped gradient is no derivative: there the other terms are checked, and the oracle holds that one."""

    def value(z: Tensor) -> Tensor:
        terms = row.build().terms(z)  # built anew, so that each evaluation has the same slices
        return total({k: t for k, t in terms.items() if k != row.stopped})

    assert torch.autograd.gradcheck(value, embeddings().requires_grad_(), eps=1e-6, atol=1e-5, rtol=1e-4)


@every_row
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, on first use
def test_forward_mode(row: Row) -> None:
    z = embeddings()
    tangent = torch.randn(z.shape, generator=torch.Generator().manual_seed(1), dtype=z.dtype)
    leaf = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(row.build()(leaf), leaf)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(z, tangent)
        slope = forward_ad.unpack_dual(row.build()(dual)).tangent
    torch.testing.assert_close(slope, (grad * tangent).sum(), rtol=1e-10, atol=1e-12)


@every_row
def test_torch_func(row: Row) -> None:
    z = embeddings()
    leaf = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(row.build()(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(row.build())(z), grad, rtol=1e-10, atol=1e-14)


@every_row
def test_gradient_penalty_on_every_term(row: Row) -> None:
    """The derivative of the squared gradient norm.  Term by term: one term's refusal must not hide another's error."""

    def penalty(terms: Callable[[Tensor], dict[str, Tensor]], name: str) -> Tensor:
        z = embeddings().requires_grad_()
        (grad,) = torch.autograd.grad(terms(z)[name], z, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), z)
        return second

    refused = set()
    for name in row.build().terms(embeddings()):
        want = penalty(lambda z: expected(row, row.build(), z), name)
        try:
            got = penalty(row.build().terms, name)
        except RuntimeError as error:
            if "second derivative" not in str(error):
                raise
            refused.add(name)
        else:
            torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")
    assert not refused


@pytest.mark.parametrize("row", [row for row in ROWS if row.kind in PAIR_LOSSES], ids=lambda row: row.name)
@pytest.mark.parametrize("d", [4, 24], ids=["n > d", "n < d"])
def test_mapped_checkpointed_and_without_numbers(row: Row, d: int) -> None:
    """vmap of grad; non-reentrant checkpointing; tensors that only have a shape, as torch.export has them."""

    def gradient(z: Tensor) -> Tensor:
        leaf = z.clone().requires_grad_()
        return torch.autograd.grad(row.build()(leaf), leaf)[0]

    z = embeddings(d=d)
    several = torch.stack([z, z.flip(2), 2 * z])
    mapped = torch.func.vmap(torch.func.grad(row.build()))(several)
    torch.testing.assert_close(mapped, torch.stack([gradient(one) for one in several]), rtol=1e-9, atol=1e-11)
    loss, leaf = row.build(), z.clone().requires_grad_()
    (kept,) = torch.autograd.grad(checkpoint(loss, leaf, use_reentrant=False), leaf)
    torch.testing.assert_close(kept, gradient(z), rtol=1e-12, atol=1e-14)
    with FakeTensorMode() as mode:
        assert loss(mode.from_tensor(z)).shape == ()
    assert loss(z.to("meta")).shape == ()


@every_row
def test_two_backwards_through_one_graph_and_a_scaled_one(row: Row) -> None:
    z = embeddings().requires_grad_()
    value = row.build()(z)
    (once,) = torch.autograd.grad(value, z, retain_graph=True)
    (again,) = torch.autograd.grad(3 * value + 1, z)
    torch.testing.assert_close(again, 3 * once)


@every_row
def test_copies_and_files_go_on_with_the_same_slices(row: Row) -> None:
    z = embeddings()
    loss = row.build()
    first = loss(z)
    copies = [copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), row.build()]
    stored = io.BytesIO()
    torch.save(loss.state_dict(), stored)
    stored.seek(0)
    copies[2].load_state_dict(torch.load(stored, weights_only=True))
    second = loss(z)
    assert bool(first == second) != (row.sliced or row.remembers), "each call draws anew, where anything is drawn"
    for other in copies:
        assert torch.equal(other(z), second)
    assert torch.equal(row.build()(z), first)


@every_row
def test_nothing_to_train_and_all_of_it_stored_as_tensors(row: Row) -> None:
    loss = row.build()
    assert not list(loss.parameters())
    assert all(isinstance(value, Tensor) for value in loss.state_dict().values())
    assert bool(loss.state_dict()) == (row.sliced or row.remembers)
    assert row.kind.__name__ in repr(loss)


SLICED = {"visreg-loss", "sigreg", "swd"}
COMPILED = [row for row in ROWS if row.name in SLICED | {"vicreg", "barlow", "ntxent", "smi"}]


def compiled(rank: int, world: int) -> dict[str, Any]:
    """Twenty steps of a network and its loss, compiled and not: values, parameter gradients, and what was compiled."""
    found: dict[str, Any] = {}
    for row in COMPILED:
        torch._dynamo.reset()
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6))
        other = copy.deepcopy(plain)
        loss, other_loss = row.build(), row.build()

        def step(net: nn.Module, criterion: nn.Module, x: Tensor) -> Tensor:
            return criterion(net(x))

        graphs: list[int] = [0]  # compiled so far, after each step

        def backend(graph: Any, inputs: Any, graphs: list[int] = graphs) -> Any:
            graphs[-1] += 1
            return aot_eager(graph, inputs)

        # Slices count their steps.  Were they traced, a number that is taken as fixed would be compiled anew.
        fast = torch.compile(step, backend=backend, dynamic=False if row.name in SLICED else None)
        off = []
        for _ in range(20):
            graphs.append(graphs[-1])
            x = torch.randn(2, 12, 5)
            want, got = step(plain, loss, x), fast(other, other_loss, x)
            want.backward()
            got.backward()
            off.append(float((got - want).detach().abs() / want.detach().abs()))
        p, q = (torch.cat([w.grad.flatten() for w in net.parameters()]) for net in (plain, other))
        found[row.name] = max(*off, float((p - q).norm() / p.norm())), graphs
    return found


def test_compiles(tmp_path: Path) -> None:
    """In a process of its own: the test run's shape checker wraps every function, and dynamo would trace that."""
    (found,) = ranks.run("tests.losses.test_autograd:compiled", world=1, folder=tmp_path)
    assert set(found) == {row.name for row in COMPILED}
    assert not {name: off for name, (off, _) in found.items() if not off <= 1e-5}
    for name, (_, graphs) in found.items():
        assert graphs[1] > 0, name
        assert graphs[-1] == graphs[2], f"{name} was compiled again after its second step: {graphs}"
        assert name not in SLICED or graphs[2] == graphs[1], f"{name} was compiled again at its second step: {graphs}"
