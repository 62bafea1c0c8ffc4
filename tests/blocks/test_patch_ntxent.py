"""Patch NT-Xent against the dense formula, in value and gradient, on one process and on two."""

import inspect
import math
import os
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from tests.ranks import run
from torch import Tensor

from reglet.blocks.patch_ntxent import PatchNTXent, patch_ntxent

N, T, D = 5, 6, 7


def dense(
    z: list[Tensor], target: list[Tensor], *, temperature: float = 0.3, intra: bool = True, symmetric: bool = True
) -> Tensor:
    """The paper's equation, one anchor after the other.  Images are (t, d), and may differ in t."""
    if symmetric:
        sides = [
            dense(a, b, temperature=temperature, intra=intra, symmetric=False) for a, b in ((z, target), (target, z))
        ]
        return sum(sides) / 2
    z, target = ([F.normalize(y, dim=1) for y in views] for views in (z, target))
    losses = []
    for i in range(len(z)):
        others = [y for view in ((z, target) if intra else (target,)) for k, y in enumerate(view) if k != i]
        for anchor, positive in zip(z[i], target[i], strict=True):
            p = torch.exp(anchor @ positive / temperature)
            losses.append(-torch.log(p / (p + torch.exp(torch.cat(others) @ anchor / temperature).sum())))
    return torch.stack(losses).mean()


def pair(n: int = N, t: int = T, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, t, D, generator=g, dtype=torch.float64)
    near = z + 0.5 * torch.randn(n, t, D, generator=g, dtype=torch.float64)
    return z.to(dtype).requires_grad_(), near.to(dtype).requires_grad_()


def gradients(value: Tensor, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value, leaves))


@pytest.mark.parametrize("intra", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("block", [1, 2 * N * T * 4, 1 << 21])
@pytest.mark.parametrize("temperature", [0.3, 0.02])
def test_value_and_gradient_are_those_of_the_dense_formula(
    intra: bool, symmetric: bool, block: int, temperature: float
) -> None:
    z, target = pair()
    options = {"temperature": temperature, "intra": intra, "symmetric": symmetric}
    value, expected = patch_ntxent(z, target, block=block, **options), dense(list(z), list(target), **options)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    for got, wanted in zip(gradients(3 * value, z, target), gradients(3 * expected, z, target), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def test_gradcheck_and_no_second_derivative() -> None:
    z, target = pair(3, 2)
    assert torch.autograd.gradcheck(lambda a, b: patch_ntxent(a, b, block=20), (z, target))
    with pytest.raises(RuntimeError, match="has no second derivative"):
        torch.autograd.grad(patch_ntxent(z, target), z, create_graph=True)


def test_a_momentum_target_gets_no_gradient_and_costs_none() -> None:
    z, target = pair()
    value = patch_ntxent(z, target.detach(), intra=False, symmetric=False)
    expected = dense(list(z), list(target.detach()), intra=False, symmetric=False)
    torch.testing.assert_close(gradients(value, z), gradients(expected, z), rtol=1e-10, atol=1e-12)
    assert not patch_ntxent(z.detach(), target.detach()).requires_grad
    keys_only = patch_ntxent(z.detach(), target, symmetric=False)
    expected = dense(list(z.detach()), list(target), symmetric=False)
    torch.testing.assert_close(gradients(keys_only, target), gradients(expected, target), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tau", [0.3, 0.5])
def test_closed_forms(tau: float) -> None:
    same = torch.ones(N, T, D, dtype=torch.float64)
    value = patch_ntxent(same, same, temperature=tau)
    assert value.item() == pytest.approx(math.log(1 + 2 * (N - 1) * T), rel=1e-12)
    cross = patch_ntxent(same, same, temperature=tau, intra=False)
    assert cross.item() == pytest.approx(math.log(1 + (N - 1) * T), rel=1e-12)
    orthogonal = torch.eye(N, dtype=torch.float64)[:, None].expand(N, T, N)
    value = patch_ntxent(orthogonal, orthogonal, temperature=tau)
    assert value.item() == pytest.approx(math.log(1 + 2 * (N - 1) * T * math.exp(-1 / tau)), rel=1e-12)


def test_what_may_be_permuted_and_what_may_not() -> None:
    z, target = (y.detach() for y in pair())
    value = patch_ntxent(z, target, symmetric=False)
    images, places = torch.randperm(N), torch.randperm(T)
    torch.testing.assert_close(patch_ntxent(z[images], target[images], symmetric=False), value)
    torch.testing.assert_close(patch_ntxent(z[:, places], target[:, places], symmetric=False), value)
    assert (patch_ntxent(z, target[:, places], symmetric=False) - value).abs() > 0.01
    torch.testing.assert_close(patch_ntxent(z, target), patch_ntxent(target, z))


def test_tokens_of_the_same_image_are_no_negatives() -> None:
    """A token of image 0 turned towards another of image 0 changes the loss of other images' anchors only."""
    z, target = (y.detach() for y in pair(2, 3))
    changed = target.clone()
    changed[0, 2] = z[0, 0]  # a key of image 0 equal to one of its own anchors, at another place
    both = [patch_ntxent(z, t, symmetric=False) * 6 for t in (target, changed)]
    others = [_anchors(z, t, image=1) + _anchors(z, t, image=0, places=[2]) for t in (target, changed)]
    torch.testing.assert_close(both[1] - both[0], others[1] - others[0])


def _anchors(z: Tensor, target: Tensor, *, image: int, places: list[int] | None = None) -> Tensor:
    """The sum of l_ij over some anchors, by the dense formula, with two images."""
    a, b = F.normalize(z, dim=2), F.normalize(target, dim=2)
    others = torch.cat([a[1 - image], b[1 - image]])
    chosen = range(z.shape[1]) if places is None else places
    p = {j: torch.exp(a[image, j] @ b[image, j] / 0.3) for j in chosen}
    return sum(torch.log1p(torch.exp(others @ a[image, j] / 0.3).sum() / p[j]) for j in chosen)


def test_digits_survive_where_the_positive_wins_by_far() -> None:
    eye = torch.eye(4, dtype=torch.float64)[:, None]
    z = (eye + 0.01 * torch.randn(4, 1, 4, generator=torch.Generator().manual_seed(0))).requires_grad_()
    exact = gradients(dense(list(z), list(z.detach()), temperature=0.05), z)[0]
    single = z.detach().float().requires_grad_()
    got = gradients(patch_ntxent(single, single.detach(), temperature=0.05), single)[0]
    assert exact.abs().max() < 1e-6
    torch.testing.assert_close(got.double(), exact, rtol=1e-3, atol=1e-13)


def test_finite_at_collapse_zero_tokens_and_small_temperatures() -> None:
    for scale in (0.0, 1e-20, 1e20):
        z = torch.full((3, 2, 4), scale, requires_grad=True)
        value = patch_ntxent(z, z.detach().clone(), temperature=0.01)
        assert value.isfinite()
        assert gradients(value, z)[0].isfinite().all()
    away = pair(3, 2, dtype=torch.float32)[0]
    value = patch_ntxent(away, -away, temperature=0.005)  # exp(2 / tau) overflows
    torch.testing.assert_close(value.double(), _gaps(away.detach().double(), 0.005), rtol=1e-5, atol=0)
    assert gradients(value, away)[0].isfinite().all()


def _gaps(z: Tensor, tau: float) -> Tensor:
    a = F.normalize(z, dim=2)
    rows = []
    for i in range(len(a)):
        others = torch.cat([view[k] for view in (a, -a) for k in range(len(a)) if k != i])
        rows += [torch.logaddexp(((others @ y + 1) / tau).logsumexp(0), torch.zeros(())) for y in a[i]]
    return torch.stack(rows).mean()


def test_never_more_scores_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    mm = torch.mm

    def seen(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        shapes.append((out.shape[0], out.untyped_storage().size() // out.element_size()))
        return mm(a, b, out=out)

    monkeypatch.setattr(torch, "mm", seen)
    z, target = pair(20, 10, dtype=torch.float32)
    patch_ntxent(z, target, block=4000).backward()
    assert {storage for _, storage in shapes} == {4000}
    assert max(rows for rows, _ in shapes) == 10


def test_module_is_the_function() -> None:
    z, target = (y.detach() for y in pair())
    for options in ({}, {"temperature": 0.5, "intra": False, "symmetric": False}):
        assert torch.equal(PatchNTXent(**options)(z, target), patch_ntxent(z, target, **options))


def test_bad_input() -> None:
    z, target = (y.detach() for y in pair(1))
    with pytest.raises(ValueError, match="at least two images are needed; got 1"):
        patch_ntxent(z, target)
    with pytest.raises(ValueError, match=r"temperature must be a number from 1e-06 .* got 0\.0"):
        patch_ntxent(*pair(), temperature=0.0)
    with pytest.raises(ValueError, match=r"temperature must be a number from 1e-06 .* got -1\.0"):
        PatchNTXent(temperature=-1.0)


AUTOCAST = """
import torch
from reglet.blocks.patch_ntxent import patch_ntxent
g = torch.Generator().manual_seed(0)
z, y = (torch.randn(4, 5, 16, generator=g).requires_grad_() for _ in range(2))
exact = patch_ntxent(z, y)
wanted = torch.autograd.grad(exact, (z, y))
with torch.autocast("cpu", torch.bfloat16):
    value = patch_ntxent(z, y)
    got = torch.autograd.grad(value, (z, y))
assert torch.equal(value, exact)
assert all(torch.equal(a, b) for a, b in zip(got, wanted)), [a - b for a, b in zip(got, wanted)]
half = patch_ntxent(z.bfloat16(), y.bfloat16())
assert half.dtype == torch.float32
assert abs(half - exact) < 0.02 * exact
"""


def test_float32_under_autocast_and_backward_inside_it() -> None:
    """In a process of its own: without the setting, bf16 kernels of some CPUs' oneDNN are illegal instructions."""
    env = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", "PYTHONPATH": os.pathsep.join([".", *sys.path])}
    done = subprocess.run([sys.executable, "-c", AUTOCAST], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SHARES = ((3, 4), (2, 6))  # images and tokens of each on the two ranks


def weights() -> Tensor:
    g = torch.Generator().manual_seed(1)
    return torch.randn(D, D, generator=g, dtype=torch.float64).requires_grad_()


def work(rank: int, world: int) -> dict[str, object]:
    """Tokens are linear in a parameter whose gradient is averaged over ranks, as DDP does."""
    images, tokens = SHARES[rank]
    found: dict[str, object] = {}
    for name, intra, momentum in (("both", True, False), ("cross", False, True)):
        w = weights()
        z, target = (y.detach() @ w for y in pair(images, tokens, seed=rank))
        target = target.detach() if momentum else target
        value = patch_ntxent(z, target, intra=intra, symmetric=not momentum, gather=True, block=50)
        (grad,) = gradients(value, w)
        torch.distributed.all_reduce(grad)
        found[name] = value.detach(), grad / world
    one = [1, 0][rank]
    try:
        patch_ntxent(torch.ones(one, 2, 3), torch.ones(one, 2, 3), gather=True)
    except ValueError as error:
        found["error"] = str(error)
    return found


def test_two_ranks_with_different_token_counts_are_one_process(tmp_path) -> None:
    ranks = run("tests.blocks.test_patch_ntxent:work", world=2, folder=tmp_path)
    for name, intra, momentum in (("both", True, False), ("cross", False, True)):
        w = weights()
        parts = [pair(images, tokens, seed=rank) for rank, (images, tokens) in enumerate(SHARES)]
        z, target = ([image for part in parts for image in part[side].detach() @ w] for side in range(2))
        target = [image.detach() for image in target] if momentum else target
        expected = dense(z, target, intra=intra, symmetric=not momentum)
        (wanted,) = gradients(expected, w)
        for value, grad in (found[name] for found in ranks):
            torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
            torch.testing.assert_close(grad, wanted, rtol=1e-10, atol=1e-12)
    assert all("at least two images are needed; got 1" in found["error"] for found in ranks)
    assert all(torch.equal(a[name][1], b[name][1]) for a, b in pairwise(ranks) for name in ("both", "cross"))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("other", [(3, 5, 8), (4, 4, 8), (3, 4, 6)])
def test_views_of_two_shapes_are_refused(symmetric: bool, other: tuple[int, ...]) -> None:
    unchecked = inspect.unwrap(patch_ntxent)  # without the shape checker of the test run
    with pytest.raises(ValueError, match="place by place"):
        unchecked(torch.randn(3, 4, 8), torch.randn(other), symmetric=symmetric)


@pytest.mark.parametrize("temperature", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_temperature_that_is_none(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be a number from 1e-06"):
        patch_ntxent(torch.randn(3, 4, 8), torch.randn(3, 4, 8), temperature=temperature)
