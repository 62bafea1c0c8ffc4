"""The losses of two places against their papers' formulas in plain float64."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from torch import Tensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from reglet.blocks import CKA, L2, Cosine, Gram
from reglet.blocks.two_places import checked

Oracle = Callable[[Tensor, Tensor], Tensor]


def cosine(z: Tensor, u: Tensor) -> Tensor:
    pairs = [(a, b) for x, y in zip(z, u, strict=True) for a, b in zip(x, y, strict=True)]
    return torch.stack([1 - a @ b / (a @ a).sqrt() / (b @ b).sqrt() for a, b in pairs]).mean()


def l2(z: Tensor, u: Tensor) -> Tensor:
    return sum((a - b) ** 2 for a, b in zip(z.flatten(), u.flatten(), strict=True)) / z.numel()  # type: ignore[return-value]


def cka(z: Tensor, u: Tensor) -> Tensor:
    """By the centring matrix and the traces of the definition (HSIC), not by the products that the code takes."""
    x, y = z.flatten(0, 1), u.flatten(0, 1)
    h = torch.eye(len(x), dtype=x.dtype) - 1 / len(x)
    k, q = h @ x @ x.T @ h, h @ y @ y.T @ h
    return 1 - (k @ q).trace() / ((k @ k).trace() * (q @ q).trace()).sqrt()


def gram_tokens(z: Tensor, u: Tensor) -> Tensor:
    found = []
    for x, y in zip(z, u, strict=True):
        cos = [[(a @ b) / (a.norm() * b.norm()) for b in side for a in side] for side in (x, y)]
        found.append(torch.stack([(p - q) ** 2 for p, q in zip(*cos, strict=True)]).mean())
    return torch.stack(found).mean()


def gram_samples(z: Tensor, u: Tensor) -> Tensor:
    rows = []
    for side in (z, u):
        g = torch.stack([torch.stack([(a * b).sum() for b in side]) for a in side])
        rows.append(torch.stack([row / row.norm() for row in g]))
    return (rows[0] - rows[1]).square().sum() / len(z) ** 2


LOSSES: dict[str, tuple[Any, Oracle]] = {
    "cosine": (Cosine(), cosine),
    "l2": (L2(), l2),
    "l2-unit": (L2(unit=True), lambda z, u: 2 * cosine(z, u)),
    "cka": (CKA(), cka),
    "gram": (Gram(), gram_tokens),
    "gram-samples": (Gram(over="samples"), gram_samples),
}
ANY_WIDTH = ["cka", "gram", "gram-samples"]
every = pytest.mark.parametrize("name", list(LOSSES))


def two(n: int = 3, t: int = 4, d: int = 5, e: int | None = None) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(n, t, d, generator=g, dtype=torch.float64)
    u = torch.randn(n, t, d if e is None else e, generator=g, dtype=torch.float64)
    return z.requires_grad_(), (u + (0.5 * z.detach() if e is None else 0)).requires_grad_()


@every
def test_is_the_formula(name: str) -> None:
    loss, oracle = LOSSES[name]
    sizes: list[Any] = [(3, 4, 5), (2, 3, 9), (5, 7, 2)]
    for size in [*sizes, (3, 4, 5, 2), (2, 2, 3, 11)] if name in ANY_WIDTH else sizes:
        z, u = two(*size)
        got, want = loss(z, u), oracle(z, u)
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
        for a, b in zip(torch.autograd.grad(got, (z, u)), torch.autograd.grad(want, (z, u)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@every
def test_gradcheck_and_second_derivatives(name: str) -> None:
    loss, _ = LOSSES[name]
    assert torch.autograd.gradcheck(loss, two(2, 3, 2))
    assert torch.autograd.gradgradcheck(loss, two(2, 3, 2))


@every
def test_equal_places_are_the_minimum_and_half_precision_is_float32(name: str) -> None:
    loss, _ = LOSSES[name]
    z, u = two()
    assert loss(z, z).abs() < 1e-12
    assert loss(z, u) > 1e-3
    half = loss(z.bfloat16(), u.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, loss(z.bfloat16().float(), u.bfloat16().float()), rtol=0, atol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(loss(z.float(), u.float()), loss(z.float(), u.float()), rtol=0, atol=0)
        assert loss(z.float(), u.float()).dtype == torch.float32


def test_what_leaves_them_alone() -> None:
    """Rotation and scale: CKA and Gram.  Scale of a token: cosine."""
    z, u = two()
    turn = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0]
    torch.testing.assert_close(CKA()(3 * z @ turn, u), CKA()(z, u))
    torch.testing.assert_close(CKA()(z + 7, u), CKA()(z, u))
    torch.testing.assert_close(Gram()(3 * z @ turn, u), Gram()(z, u))
    torch.testing.assert_close(Cosine()(z * torch.rand(3, 4, 1) + 0 * z, u), Cosine()(z, u))
    assert Gram()(z + 7, u) != Gram()(z, u)


@every
def test_at_collapse_and_at_extreme_sizes_all_is_finite(name: str) -> None:
    loss, _ = LOSSES[name]
    for a in (0.0, 1.0):
        z = torch.full((3, 4, 5), a, requires_grad=True)
        value = loss(z, two()[1].float())
        (grad,) = torch.autograd.grad(value, z)
        assert value.isfinite()
        assert grad.isfinite().all()
    z, u = (x.detach().float() for x in two())
    small, large = (z * s for s in (1e-12, 1e12))
    if name.startswith(("cka", "gram")):
        torch.testing.assert_close(loss(large, u), loss(z, u))
        assert loss(small, u).isfinite()


def test_wrong_input() -> None:
    z, u = two()
    for loss, _ in LOSSES.values():
        for a, b in ((z[0], u[0]), (z, u[:, :2]), (z[:0], u[:0])):
            with pytest.raises((ValueError, TypeError)):
                loss(a, b)
    with pytest.raises(ValueError, match=r"target must be a floating-point tensor \(3, 4, 5\)"):
        checked(z, two(3, 4, 5, 6)[1])  # of the losses the shape checker of the test run would say it
    with pytest.raises(ValueError, match="say over='samples'"):
        Gram()(z[:, :1], u[:, :1])
    with pytest.raises(ValueError, match="at least 2 are needed, got 1"):
        Gram(over="samples")(z[:1], u[:1])
    with pytest.raises(ValueError, match="at least two tokens in the batch, got 1"):
        CKA()(z[:1, :1], u[:1, :1])


def on_ranks(rank: int, world: int) -> dict[str, Any]:
    found = {}
    for name, loss in {"cka": CKA(gather=True), "gram": Gram(over="samples", gather=True)}.items():
        torch.manual_seed(0)
        model = torch.nn.Linear(5, 3).double()
        z, u = (x[rank * 6 // world : (rank + 1) * 6 // world].detach() for x in two(6, 3))
        run = DistributedDataParallel(model) if world > 1 else model
        value = loss(run(z), u)
        value.backward()
        found[name] = [value.detach(), model.weight.grad]
    return found


def test_ranks_have_the_value_and_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    alone = on_ranks(0, 1)
    for one in ranks.run("tests.blocks.test_two_places:on_ranks", world=2, folder=tmp_path):
        for name, expected in alone.items():
            torch.testing.assert_close(one[name], expected)


def test_f_normalize_is_what_unit_is() -> None:
    """The eps of `unit` is seen by vectors shorter than it alone."""
    z = two()[0]
    torch.testing.assert_close(L2(unit=True)(z, 2 * z), torch.zeros((), dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(Cosine()(z, -z), 1 + F.cosine_similarity(z, z, dim=-1).mean())
