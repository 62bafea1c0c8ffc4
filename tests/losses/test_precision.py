"""float32 whatever autocast says; half precision is widened, not rounded again; float64 stays float64."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from tests.contracts import ROWS, Row, expected
from tests.losses import oracles
from torch import Tensor

# oneDNN's fastest bfloat16 kernels are illegal instructions on machines that announce them without having them.
SAFE = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}


def embeddings() -> Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.randn(1, 24, 20, generator=g) + 0.7 * torch.randn(3, 24, 20, generator=g)


def run(row: Row, z: Tensor) -> tuple[Tensor, Tensor]:
    z = z.clone().requires_grad_()
    value = row.build()(z)
    (grad,) = torch.autograd.grad(value, z)
    return value.detach(), grad


def deviation(got: tuple[Tensor, Tensor], want: tuple[Tensor, Tensor]) -> float:
    return max(float((a.float() - b.float()).norm() / b.float().norm()) for a, b in zip(got, want, strict=True))


def work(rank: int, world: int) -> dict[str, Any]:
    z = embeddings()
    seen: dict[str, Any] = {"autocast": {}, "half": {}, "dtypes": {}}
    for row in ROWS:
        plain = run(row, z)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            leaf = z.clone().requires_grad_()
            value = row.build()(leaf)
            wide = row.build()(z.double())
            (inside,) = torch.autograd.grad(value, leaf, retain_graph=True)
        (grad,) = torch.autograd.grad(value, leaf)
        seen["autocast"][row.name] = deviation((value.detach(), grad), plain)
        seen["autocast"][f"{row.name}, backward inside"] = deviation((value.detach(), inside), plain)
        seen["autocast"][f"{row.name}, float64"] = float((wide - total64(row, z)).abs() / wide.abs())
        seen["dtypes"][row.name] = (value.dtype, grad.dtype, wide.dtype)
        for half in (torch.bfloat16, torch.float16):
            rounded = z.to(half)
            value, grad = run(row, rounded)
            exact, exact_grad = run(row, rounded.float())
            # the gradient is handed back in the input's own precision, and rounded once on the way
            seen["half"][f"{row.name}, {half}"] = deviation((value, grad), (exact, exact_grad.to(half)))
            seen["dtypes"][f"{row.name}, {half}"] = (value.dtype, grad.dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        naive = oracles.ntxent(z[0], z[1], temperature=0.1)
    seen["rounded"] = float((naive.float() - oracles.ntxent(z[0], z[1], temperature=0.1)).abs())
    return seen


def total64(row: Row, z: Tensor) -> Tensor:
    return torch.stack(list(expected(row, row.build(), z.double()).values())).sum()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("precision")
    return ranks.run("tests.losses.test_precision:work", world=1, folder=folder, environment=SAFE)[0]


def test_autocast_changes_nothing(seen: dict[str, Any]) -> None:
    wrong = {name: off for name, off in seen["autocast"].items() if not off <= (1e-10 if "64" in name else 1e-6)}
    assert not wrong
    assert seen["rounded"] > 1e-4, "autocast rounds the naive formula, so this test can fail"


def test_half_precision_is_the_float32_loss_of_the_rounded_values(seen: dict[str, Any]) -> None:
    assert not {name: off for name, off in seen["half"].items() if not off <= 1e-6}


def test_dtypes(seen: dict[str, Any]) -> None:
    for row in ROWS:
        assert seen["dtypes"][row.name] == (torch.float32, torch.float32, torch.float64)
        for half in (torch.bfloat16, torch.float16):
            assert seen["dtypes"][f"{row.name}, {half}"] == (torch.float32, half)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_large_half_precision_does_not_overflow(row: Row) -> None:
    """300 squared is beyond float16."""
    z = (300 * embeddings()).half()
    value, grad = run(row, z.float())
    got, _ = run(row, z)
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()
    torch.testing.assert_close(got, value, rtol=1e-6, atol=0)
