"""The share of the gradient is the formula's, and looking at it changes nothing."""

from pathlib import Path

import pytest
import torch
from recipes.dose import TIMES, Dose
from torch import Tensor, nn

from reglet.engine.feed import TensorFeed
from reglet.engine.order import Shuffled
from reglet.engine.settings import Settings
from reglet.method import Batch, Method
from reglet.train import fit
from reglet.types import Terms


class Two(Method):
    """Task a w.x, regularizer b w.x on one weight vector: gradients a |x| and b |x|; a head and noise beside."""

    def __init__(self, names: tuple[str, ...], *, a: float = 3.0, b: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Dropout(0.5), nn.Linear(4, 1, bias=False))
        self.head, self.names, self.factors = nn.Linear(1, 1), names, (a, b)

    def forward(self, batch: Batch) -> Terms:
        y = self.backbone(batch.views[0])
        heads = 100 * self.head(y.detach()).square().mean()  # no gradient of the backbone
        return {name: f * (y.mean() + heads) for name, f in zip(self.names, self.factors, strict=False)}

    def encode(self, x: Tensor) -> Tensor:
        y: Tensor = self.backbone(x)
        return y


def trained(method: Two, out: Path, *, watched: bool) -> tuple[Two, Dose]:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    feed = TensorFeed(lambda i, g: Batch([x[i]]), Shuffled(n=32, batch=8, seed=0), name="x", fingerprint="0")
    dose = Dose().begin(method, Batch([x[:8]]))
    settings = Settings(out=str(out), steps=6, batch=8, accelerator="cpu", save_every=100, log_every=100)
    fit(method, feed, settings, watch=[dose] if watched else [], shown=False)
    return method, dose


def test_the_share_is_that_of_the_backbones_gradient(tmp_path: Path) -> None:
    _, dose = trained(Two(("original", "degraded")), tmp_path, watched=True)
    assert [dose.scores[f"share {time}"] for time in TIMES] == pytest.approx([0.25] * 3)
    penalties = [dose.scores[f"penalty {time}"] for time in TIMES]
    assert len(set(penalties)) == 3, "it falls while the network learns"


@pytest.mark.parametrize("names", [("cross_entropy",), ("sim",)], ids=["no regularizer", "nothing else"])
def test_one_kind_of_term_has_no_share(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert trained(Two(names), tmp_path, watched=True)[1].scores == {}


def test_watching_changes_no_bit(tmp_path: Path) -> None:
    names = ("original", "degraded")
    seen, unseen = (trained(Two(names), tmp_path / str(w), watched=w)[0].state_dict() for w in (True, False))
    for name, value in seen.items():
        assert torch.equal(value, unseen[name]), name
