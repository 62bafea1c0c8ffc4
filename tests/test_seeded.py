"""What draws random numbers of its own leaves those of everybody else as they were, on every device."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from reglet.engine.build import build_parts
from reglet.engine.config import Config
from reglet.probes import fine_tune, mlp_probe, segmentation_probe
from reglet.seeded import seeded


def test_inside_the_seed_decides_and_outside_nothing_happened() -> None:
    before = torch.get_rng_state()
    with seeded(3):
        a = torch.rand(4)
    with seeded(3):
        b = torch.rand(4)
    assert torch.equal(a, b)
    assert torch.equal(a, torch.rand(4, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(torch.get_rng_state(), before)


def _mlp(x: Tensor, y: Tensor) -> None:
    mlp_probe(x, y, x, y, width=4, rates=[1e-2], epochs=1)


def _segmentation(x: Tensor, y: Tensor) -> None:
    masks = y[:, None, None].expand(-1, 2, 2)
    segmentation_probe(x[:, None].expand(-1, 4, -1), masks, x[:, None].expand(-1, 4, -1), masks, grid=(2, 2), epochs=1)


def _finetune(x: Tensor, y: Tensor) -> None:
    images = torch.zeros(len(y), 3, 8, 8, dtype=torch.uint8)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    fine_tune(net, images, y, images, y, size=8, epochs=1)


def _build(x: Tensor, y: Tensor) -> None:
    build_parts(Config(data="digits", model="convnet"))


@pytest.mark.parametrize("work", [_mlp, _segmentation, _finetune, _build])
def test_no_global_generator_is_seeded(work: Callable[[Tensor, Tensor], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of GPUs neither: without a GPU, torch keeps such a call for the day it sees one."""
    x, y = torch.randn(12, 6), torch.arange(12) % 2
    seen: list[int] = []
    for name in ("manual_seed", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, seen.append)
    before = torch.get_rng_state()
    work(x, y)
    assert torch.equal(torch.get_rng_state(), before) or work is _finetune  # the network is made in the test itself
    assert seen == []
