"""The laws of the room of view losses, swept over every row of tests/contracts.py."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.contracts import ROWS, Oracle, Row, directions, expected
from tests.losses import oracles
from torch import Tensor

import reglet
from reglet.losses import cpu_slices

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)

SIZES = [(2, 16, 8), (2, 8, 24), (2, 3, 5), (3, 33, 12), (4, 12, 33), (2, 130, 70), (2, 70, 130)]
LARGE = [(2, 600, 20), (2, 530, 531), (2, 24, 1100)]  # for what is done in pieces


def gaussian(v: int, n: int, d: int, seed: int = 0) -> Tensor:
    """Views of the same samples, correlated as views are; a little off centre and off scale."""
    g = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, d, generator=g, dtype=torch.float64)
    own = torch.randn(v, n, d, generator=g, dtype=torch.float64)
    scale = 0.5 + torch.rand(d, generator=g, dtype=torch.float64)
    return (shared + 0.7 * own) * scale + 0.3 * torch.randn(d, generator=g, dtype=torch.float64)


def clustered(v: int, n: int, d: int) -> Tensor:
    """Two clusters: far from normal, so that no gradient is small."""
    g = torch.Generator().manual_seed(5)
    side = torch.where(torch.rand(n, 1, generator=g) < 0.3, -7.0, 3.0).double()
    return gaussian(v, n, d) + side * torch.randn(d, generator=g, dtype=torch.float64)


def unrelated(v: int, n: int, d: int) -> Tensor:
    return torch.randn(v, n, d, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def offset(v: int, n: int, d: int) -> Tensor:
    """The mean far larger than the spread, and different in each feature."""
    return gaussian(v, n, d) + 100 * torch.randn(d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def dominant(v: int, n: int, d: int) -> Tensor:
    """One dimension holds all of the energy."""
    z = 0.1 * gaussian(v, n, d)
    z[..., 0] *= 1e3
    return z


def duplicated(v: int, n: int, d: int) -> Tensor:
    """The second half of the batch repeats the first."""
    return gaussian(v, n // 2, d).repeat(1, 2, 1)


def white(v: int, n: int, d: int) -> Tensor:
    """Columns (n > d) or rows (n < d) orthogonal but for one part in a thousand, in every view."""
    z = gaussian(1, n, d)[0]
    z = z - z.mean(dim=0)
    u, _, vh = torch.linalg.svd(z, full_matrices=False)
    r = min(n - 1, d)
    noise = torch.randn(v, n, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return math.sqrt(n) * u[:, :r] @ vh[:r] + 1e-3 * noise


def apart(v: int, n: int, d: int) -> Tensor:
    """The views vary along different samples: the correlations across views nearly vanish, those within do not."""
    z = 1e-3 * gaussian(v, n, d)
    for i in range(v):
        part = slice(2 * (n // 2 // v) * i, 2 * (n // 2 // v) * (i + 1))
        half = gaussian(1, (part.stop - part.start) // 2, d, seed=i)[0]
        z[i, part] += torch.cat([half, -half])
    return z


AWKWARD: list[Callable[[int, int, int], Tensor]] = [gaussian, offset, dominant, duplicated, white, apart]


def gradients(terms: dict[str, Tensor], z: Tensor) -> dict[str, Tensor]:
    return {name: torch.autograd.grad(term, z, retain_graph=True)[0].double() for name, term in terms.items()}


def total(parts: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(parts.values())).sum(dim=0)


def magnitude(terms: dict[str, Tensor]) -> float:
    return (
        float(total(terms).detach().abs()) if len(terms) == 1 else sum(float(t.detach().abs()) for t in terms.values())
    )


def distance(got: Tensor, want: Tensor) -> float:
    return float((got.detach().double() - want.detach().double()).norm())


def close(got: Tensor, want: Tensor, tolerance: float, what: str) -> None:
    off, scale = distance(got, want), float(want.detach().norm())
    assert off <= tolerance * scale, f"{what}: off by {off:.1e}, allowed {tolerance:.0e} of {scale:.3g}"


Both = tuple[dict[str, Tensor], dict[str, Tensor]]  # terms, and the gradient of each


def ours_and_oracle(row: Row, z: Tensor) -> tuple[Both, Both]:
    """The loss in the dtype of z, and the oracle in float64 at the very same numbers and directions."""
    z = z.detach().requires_grad_()
    loss = row.build()
    want = oracle(row.oracle, z, directions(loss, z.detach()))
    got = loss.terms(z)
    assert list(got) == list(want[0])
    assert all(term.dtype == z.dtype and term.shape == () for term in got.values())
    return (got, gradients(got, z)), want


def oracle(formula: Oracle, z: Tensor, w: Tensor) -> Both:
    exact = z.detach().double().requires_grad_()
    terms = formula(exact, len(z), w.double())
    return terms, gradients(terms, exact)


def neighbours(row: Row, z: Tensor) -> Iterator[Both]:
    """The oracle where each number has moved by up to two units in its last place: no computation knows better."""
    g = torch.Generator().manual_seed(3)
    w = directions(row.build(), z)
    for _ in range(3):
        nudge = 2 * torch.finfo(z.dtype).eps * (2 * torch.rand(z.shape, generator=g, dtype=torch.float64) - 1)
        yield oracle(row.oracle, z.double() * (1 + nudge), w)
    if row.neighbour is not None and z.dtype == torch.float32:
        yield oracle(row.neighbour, z, w)


@every_row
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_is_the_papers_formula(row: Row, dtype: torch.dtype) -> None:
    """Every term by itself, in value and in gradient, so that no small term hides behind a large one."""
    value, gradient = (1e-10, 1e-10) if dtype == torch.float64 else (1e-5, 1e-4)
    cases = [(gaussian, size) for size in SIZES] + [(clustered, size) for size in LARGE]
    for data, size in cases if dtype == torch.float32 else cases[: len(SIZES)]:
        (got, got_grad), (want, want_grad) = ours_and_oracle(row, data(*size).to(dtype))
        for name in want:
            close(got[name], want[name], value, f"{size}, {name}, value")
            if not (row.sorts and dtype == torch.float32):
                close(got_grad[name], want_grad[name], gradient, f"{size}, {name}, gradient")


@pytest.mark.parametrize("row", [row for row in ROWS if row.sorts], ids=lambda row: row.name)
def test_float32_gradient_of_a_sort_is_exact_but_for_near_ties(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """1e-5 of the oracle's gradient, once the oracle sorts as the kernel did.

    Float32 cannot tell the order of a few of 1e5 neighbours.  One swapped pair moved the gradient by 2.3e-3 of its
    norm.  So the order is compared by itself: where it differs, the oracle's projections are equal to 1e-5.
    """
    orders: list[Tensor] = []
    sort = cpu_slices._TaggedSort.__call__

    def recorded(self: Any, p: Tensor) -> Tensor:
        orders.append(sort(self, p).clone())
        return orders[-1]

    def as_the_kernel_did(p: Tensor) -> Tensor:
        order = torch.cat(orders).permute(1, 2, 0)
        mine = p.gather(1, order)
        assert torch.equal(order.sort(dim=1).values, torch.arange(p.shape[1])[:, None].expand_as(order))
        assert float((mine - p.sort(dim=1).values).detach().abs().max()) < 1e-5 * float(p.detach().std())
        return mine

    monkeypatch.setattr(cpu_slices, "threads", lambda: 1)  # so that the orders come in the order of the slices
    for data, size in [(gaussian, size) for size in SIZES] + [(clustered, size) for size in LARGE]:
        z = data(*size).float().requires_grad_()
        orders.clear()
        with monkeypatch.context() as kernel:
            kernel.setattr(cpu_slices._TaggedSort, "__call__", recorded)
            terms = row.build().terms(z)
        with monkeypatch.context() as formula:
            formula.setattr(oracles, "ordered", as_the_kernel_did)
            want, want_grad = oracle(row.oracle, z, directions(row.build(), z.detach()))
        got_grad = gradients(terms, z)
        for name in want:
            close(got_grad[name], want_grad[name], 1e-5, f"{size}, {name}, gradient")


@every_row
@pytest.mark.parametrize("data", AWKWARD, ids=lambda data: data.__name__)
def test_float32_is_as_good_as_its_input(row: Row, data: Callable[[int, int, int], Tensor]) -> None:
    """1e-5 of the loss and 1e-4 of its gradient, where the exact formula is that steady.

    Where a sort is decided by the last bit, or all that is left is a difference of nearly equal numbers, the exact loss
    of a neighbouring input is as far away: that much is allowed on top.  So is one unit in the last place of the loss
    of unrelated views, for a loss near its zero.  Two samples standardise to +1 and -1 whatever they are, and what
    gradient eps then leaves is the rest of a sum of large ones.  Of SMI, float32 has rho to a rounding, and so
    1 - rho^2 + eps: beside eps = 1e-6, at rho = 1, that is much.
    """
    for size in [(2, 64, 24), (2, 24, 64), (3, 24, 64), (2, 2, 5), (3, 2, 4)]:
        z = data(*size).float()
        (got, got_grad), (want, want_grad) = ours_and_oracle(row, z)
        scale, (a, b) = magnitude(want), (per_distinct_sample(total(g), data, row) for g in (got_grad, want_grad))
        off, off_grad = distance(total(got), total(want)), distance(a, b)
        allowed, allowed_grad = 1e-5 * scale, 1e-4 * float(b.norm())
        if off > allowed or off_grad > allowed_grad:
            near = list(neighbours(row, z))
            ordinary = magnitude(row.oracle(unrelated(*size), size[0], directions(row.build(), z).double()))
            allowed += max(distance(total(terms), total(want)) for terms, _ in near) + 2**-23 * ordinary
            allowed_grad += max(distance(total(grad), total(want_grad)) for _, grad in near)
            if size[1] == 2:
                rounding = z.abs().amax(dim=(0, 1)) / (z[:, 0] - z[:, 1]).square().amin(dim=0)
                allowed_grad += 2**-22 * scale * float(rounding.max())
        assert off <= allowed, f"{size}: value off by {off / scale:.1e} of {scale:.3g}"
        assert off_grad <= allowed_grad, f"{size}: gradient off by {off_grad / float(b.norm()):.1e} of its norm"


def per_distinct_sample(g: Tensor, data: Callable[[int, int, int], Tensor], row: Row) -> Tensor:
    """Of equal samples only the sum of gradients is determined, where the loss sorts."""
    if data is not duplicated or not row.sorts:
        return g
    half = g.shape[1] // 2
    return g[:, :half] + g[:, half:]


@every_row
def test_order_of_samples_and_views_changes_nothing(row: Row) -> None:
    z = gaussian(3, 20, 9).requires_grad_()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    value = row.build()(z)
    (grad,) = torch.autograd.grad(value, z)
    for changed, back in [
        (z[:, order], lambda g: g[:, order]),
        (z.flip(0), lambda g: g.flip(0)),
    ]:
        other = row.build()(changed)
        close(other, value, 1e-12, "value")
        (g,) = torch.autograd.grad(row.build()(moved := changed.detach().requires_grad_()), moved)
        close(g, back(grad), 1e-10, "gradient")


COLLAPSES = {
    "zero": lambda z: torch.zeros_like(z),
    "one point": lambda z: z[:1, :1].expand_as(z).clone(),
    "a point per view": lambda z: z[:, :1].expand_as(z).clone(),
    "constant features": lambda z: torch.full_like(z, 3.0),
    "near zero": lambda z: 1e-6 * z,
    "so near that squares vanish": lambda z: 1e-25 * z,
    "near a point": lambda z: 1 + 1e-6 * z,
    "a dead dimension": lambda z: z * (torch.arange(z.shape[2]) > 0),
    "a dead sample": lambda z: z * (torch.arange(z.shape[1]) > 0)[:, None],
    "duplicates": lambda z: z[:, [0, *range(z.shape[1] - 1)]],
    "identical views": lambda z: z[:1].expand_as(z).clone(),
    "opposite views": lambda z: torch.stack([z[0], -z[0]]),
    "one line": lambda z: z[..., :1] * torch.ones(z.shape[2]),
}


@every_row
@pytest.mark.parametrize("n", [2, 9])
def test_finite_at_collapse(row: Row, n: int) -> None:
    for name, collapse in COLLAPSES.items():
        z = collapse(gaussian(2, n, 6).float()).requires_grad_()
        terms = row.build().terms(z)
        assert all(torch.isfinite(term) for term in terms.values()), f"{name}: {terms}"
        for term, grad in gradients(terms, z).items():
            assert torch.isfinite(grad).all(), f"{name}: gradient of {term}"


@every_row
def test_calls_agree(row: Row) -> None:
    z = gaussian(2, 12, 7)
    value = row.build()(z)
    assert value.shape == ()
    z0, z1 = z
    for call in (
        lambda loss: loss(z0, z1),
        lambda loss: loss([z0, z1]),
        lambda loss: loss((z0, z1)),
        lambda loss: loss(global_views=z),
        lambda loss: loss(global_views=[z0, z1]),
        lambda loss: torch.stack(list(loss.terms(z).values())).sum(),
        lambda loss: torch.stack(list(loss.terms(z0, z1).values())).sum(),
        lambda loss: torch.stack(list(loss.terms(global_views=z).values())).sum(),
    ):
        close(call(row.build()), value, 1e-14, "value")


@every_row
def test_global_and_local_views(row: Row) -> None:
    """The oracle says what local views enter; a regularizer, which treats all alike, gives the stacked call."""
    z = gaussian(5, 10, 8).requires_grad_()
    loss = row.build()
    want = expected(row, loss, z, n_global=2)
    got = loss.terms(global_views=z[:2], local_views=z[2:])
    want_grad, got_grad = gradients(want, z), gradients(got, z)
    for name in want:
        close(got[name], want[name], 1e-10, name)
        close(got_grad[name], want_grad[name], 1e-10, f"{name}, gradient")
    as_lists = row.build()(global_views=list(z[:2]), local_views=tuple(z[2:]))
    close(as_lists, total(want), 1e-10, "as lists")
    if row.least_views == 1:
        close(as_lists, row.build()(z), 1e-12, "stacked")


@pytest.mark.parametrize("row", [row for row in ROWS if row.least_views == 1], ids=lambda row: row.name)
def test_one_view_is_enough_for_a_regularizer(row: Row) -> None:
    z = gaussian(1, 12, 7)
    loss = row.build()
    want = total(expected(row, loss, z))
    close(loss(z), want, 1e-10, "(1, n, d)")
    close(row.build()(z[0]), want, 1e-10, "(n, d)")
    close(row.build()([z[0]]), want, 1e-10, "[(n, d)]")


@every_row
def test_inputs_that_are_views_of_memory(row: Row) -> None:
    """Transposed, strided and expanded embeddings give what their copies give, and no input is written to."""
    z = gaussian(2, 12, 14)
    base = z.permute(2, 0, 1).contiguous()
    strided = gaussian(2, 24, 14)
    for odd in (base.permute(1, 2, 0), strided[:, ::2], z[:1].expand(2, -1, -1)):
        before = odd.clone()
        value = row.build()(odd)
        assert torch.equal(odd, before)
        close(value, row.build()(before.contiguous()), 1e-13, "value")


@every_row
def test_without_gradient_the_value_is_the_same(row: Row) -> None:
    z = gaussian(2, 12, 7)
    with torch.no_grad():
        quiet = row.build()(z)
    assert not quiet.requires_grad
    loud = row.build()(z.clone().requires_grad_())
    close(quiet, loud.detach(), 1e-13, "value")


@every_row
def test_gradient_reaches_the_view_that_asks_for_it(row: Row) -> None:
    """With one view fixed (a teacher's), the other still gets its own part of the gradient."""
    z = gaussian(2, 12, 7)
    loss = row.build()
    whole = z.clone().requires_grad_()
    (want,) = torch.autograd.grad(total(expected(row, loss, whole)), whole)
    student = z[0].clone().requires_grad_()
    (got,) = torch.autograd.grad(loss(student, z[1]), student)
    close(got, want[0], 1e-10, "gradient")


def test_default_slices() -> None:
    """Rows ask for few; these are what a person gets."""
    for build, count, shared in [
        (reglet.VISReg, 4096, False),
        (reglet.VISRegLoss, 4096, False),
        (reglet.SWD, 4096, False),
        (reglet.SWDLoss, 4096, False),
        (reglet.SIGReg, 1024, True),
        (reglet.LeJEPALoss, 1024, True),
    ]:
        slices = build().slices
        assert (slices.count, slices.shared, slices.step) == (count, shared, 0)
