"""A loss that is not finite stops the run before the weights change, and the step can be had again."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.engine.toy import Toy, feed, images
from torch import nn

from reglet.engine.checkpoint import read
from reglet.engine.guard import NonFiniteError
from reglet.engine.settings import Settings
from reglet.losses import VISRegLoss
from reglet.method import Batch
from reglet.train import fit, replay
from reglet.types import Terms


class Breaks(Toy):
    """Infinite in its seventh step, in the loss, its gradient or the embeddings."""

    def __init__(self, where: str) -> None:
        torch.manual_seed(0)
        super().__init__(VISRegLoss(slices=64), norm=True, dropout=0.2)
        self.where = where

    def forward(self, batch: Batch) -> Terms:
        z = self.embed(batch.views)
        now = int(self.seen) == 6
        if now and self.where == "embedding":
            z[1] = z[1] / 0
        terms = self.objective(z, n_global=2)
        if now and self.where == "loss":
            terms["extra"] = z[0].mean() * math.inf
        if now and self.where == "gradient":
            terms["extra"] = (z[0].mean() - z[0].mean()).clamp_min(0).sqrt()
        return terms


def settings(out: Path) -> Settings:
    return Settings(out=str(out), accelerator="cpu", epochs=4, batch=16, save_every=5, log_every=1)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("loss", "extra = (nan|inf|-inf)"),
        ("gradient", "norm of the gradient = nan"),
        ("embedding", "view 1 has .* non-finite"),
    ],
)
def test_stops_and_can_be_replayed(tmp_path: Path, where: str, says: str) -> None:
    s = settings(tmp_path / "run")
    with pytest.raises(NonFiniteError, match=f"step 6: {says}") as caught:
        fit(Breaks(where), feed(s), s, shown=False)
    tensors, about = read(tmp_path / "run" / "checkpoint.safetensors")
    assert about["step"] == 5
    assert all(torch.isfinite(v).all() for v in tensors.values())

    bundle, about = read(caught.value.bundle)
    assert all(torch.isfinite(v).all() for v in bundle.values())  # the averages of batch norm, too
    again = replay(caught.value.bundle, method=Breaks(where), feed=feed(s))
    assert again.says == about["says"]
    assert {name: str(term) for name, term in again.terms.items()} == about["terms"]
    if where != "embedding":
        assert math.isfinite(again.terms["shape"])  # one that depends on dropout, views and slices


def test_replay_refuses_other_data(tmp_path: Path) -> None:
    s = settings(tmp_path / "run")
    with pytest.raises(NonFiniteError) as caught:
        fit(Breaks("loss"), feed(s), s, shown=False)
    with pytest.raises(ValueError, match="the data are not those of the run"):
        replay(caught.value.bundle, method=Breaks("loss"), feed=feed(s, data=images(90)))
    with pytest.raises(ValueError, match="made in Python"):
        replay(caught.value.bundle)


class BreaksInAHead(Breaks):
    """NaN in the gradient of a part that is not clipped, and nowhere else."""

    unclipped = ("aside",)

    def __init__(self) -> None:
        super().__init__("nowhere")
        self.aside = nn.Linear(2, 2)

    def forward(self, batch: Batch) -> Terms:
        terms = super().forward(batch)
        w = self.aside.weight.mean()
        extra = (w - w).clamp_min(0).sqrt() if int(self.seen) == 6 else 0 * w
        return terms | {"extra": extra}


def test_a_gradient_that_is_not_clipped_is_watched_too(tmp_path: Path) -> None:
    s = replace(settings(tmp_path / "run"), clip=1.0)
    with pytest.raises(NonFiniteError, match="norm of the gradient = nan"):
        fit(BreaksInAHead(), feed(s), s, shown=False)
