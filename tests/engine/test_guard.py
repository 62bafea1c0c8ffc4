"""A loss that is not finite stops the run before the weights change, and the step can be had again."""

import math
from pathlib import Path

import pytest
import torch
from tests.engine.toy import Brighten, Toy, images

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
    with pytest.raises(NonFiniteError, match=f"step 6: {says}") as caught:
        fit(Breaks(where), images(), Brighten(), settings(tmp_path / "run"), shown=False)
    tensors, about = read(tmp_path / "run" / "checkpoint.safetensors")
    assert about["step"] == 5
    assert all(torch.isfinite(v).all() for v in tensors.values())

    bundle, about = read(caught.value.bundle)
    assert all(torch.isfinite(v).all() for v in bundle.values())  # the averages of batch norm, too
    again = replay(caught.value.bundle, method=Breaks(where), images=images(), policy=Brighten())
    assert again.says == about["says"]
    assert {name: str(term) for name, term in again.terms.items()} == about["terms"]
    if where != "embedding":
        assert math.isfinite(again.terms["shape"])  # one that depends on dropout, views and slices


def test_replay_refuses_other_data(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError) as caught:
        fit(Breaks("loss"), images(), Brighten(), settings(tmp_path / "run"), shown=False)
    with pytest.raises(ValueError, match="the data are not those of the run"):
        replay(caught.value.bundle, method=Breaks("loss"), images=images(90), policy=Brighten())
    with pytest.raises(ValueError, match="made in Python"):
        replay(caught.value.bundle)
