"""matmul_precision=, deterministic= and checkpoint_activations=: what they switch, and what they leave as it is."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.contracts import ROWS
from tests.engine.toy import feed, toy
from torch import Tensor, nn

from reglet.backbones import build
from reglet.engine.activations import checkpoint_activations
from reglet.engine.arithmetic import arithmetic
from reglet.engine.checkpoint import read
from reglet.engine.settings import Settings
from reglet.method import Batch
from reglet.train import fit
from reglet.types import Terms, total

PLAIN = Settings(accelerator="cpu", epochs=1, batch=16)


@pytest.fixture
def high() -> Iterator[None]:
    with arithmetic(replace(PLAIN, matmul_precision="high")):
        yield


def switches() -> tuple[Any, ...]:
    return (torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled())


class Notes(torch.autograd.Function):
    """The identity; notes the precision of products when it is passed, there and back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seen: list[str]) -> Tensor:
        ctx.seen = seen
        seen.append(torch.get_float32_matmul_precision())
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        ctx.seen.append(torch.get_float32_matmul_precision())
        return g, None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_products_of_a_loss_are_full(high: None, row: Any) -> None:
    """And those of the network around it are not, on either way."""
    loss = row.build()
    inside, around = list[str](), list[str]()
    plain = loss.compute_on_ranks

    def noted(z: Any, *rest: Any) -> Terms:
        z = Notes.apply(z, inside) if isinstance(z, Tensor) else [Notes.apply(view, inside) for view in z]
        return plain(z, *rest)

    loss.compute_on_ranks = noted
    z = torch.randn(2, 12, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    total(loss.terms(Notes.apply(z, around))).backward()
    assert set(inside) == {"highest"}
    assert len(inside) in (2, 4)  # there and back, of one tensor or of two
    assert around == ["high", "high"]
    assert torch.get_float32_matmul_precision() == "high"


def test_switches_are_set_inside_and_put_back(tmp_path: Path) -> None:
    before, seen = switches(), []

    class Watched(type(toy())):  # type: ignore[misc]
        def forward(self, batch: Batch) -> Terms:
            seen.append(switches())
            out: Terms = super().forward(batch)
            return out

    method = toy()
    method.__class__ = Watched
    s = replace(PLAIN, out=str(tmp_path), steps=1, matmul_precision="medium", deterministic=True)
    fit(method, feed(s), s, shown=False)
    assert seen == [("medium", True)]
    assert switches() == before
    with pytest.raises(ValueError, match="goes without compile=true"):
        replace(s, compile=True)


@pytest.mark.parametrize("name", ["vit_mini", "resnet18"])
def test_activations_are_computed_again(name: str) -> None:
    """The same gradient and averages, and less is kept."""
    torch.manual_seed(0)
    plain = build(name, size=16, in_channels=3).train()
    forgetful = deepcopy(plain)
    checkpoint_activations(forgetful)
    x = torch.randn(4, 3, 16, 16)
    kept = []
    for net in (plain, forgetful, deepcopy(forgetful)):
        bytes_kept = 0

        def pack(t: Tensor) -> Tensor:
            nonlocal bytes_kept
            bytes_kept += t.numel() * t.element_size()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = net(x).square().sum()
        kept.append(bytes_kept)
        y.backward()
    assert kept[1] < kept[0] / 2
    for a, b in zip(plain.parameters(), forgetful.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for (key, a), b in zip(plain.state_dict().items(), forgetful.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    with pytest.raises(ValueError, match="no Sequential or ModuleList of blocks"):
        checkpoint_activations(nn.Linear(2, 2))


def test_a_run_that_checkpoints_activations(tmp_path: Path) -> None:
    from reglet.engine.config import Config
    from reglet.train import run

    ends = []
    for again in (False, True):
        out = tmp_path / str(again)
        small = {"labels": "40", "batch": 20, "steps": 2, "size": 16, "knn_every": 0, "projector": "8"}
        given = {**small, "accelerator": "cpu", "out": str(out), "checkpoint_activations": again}
        run(Config(data="digits", model="convnet", **given), shown=False)  # type: ignore[arg-type]
        ends.append(read(out / "checkpoint.safetensors")[0])
    for key, value in ends[0].items():
        torch.testing.assert_close(ends[1][key], value, msg=lambda text, key=key: f"{key}: {text}")
