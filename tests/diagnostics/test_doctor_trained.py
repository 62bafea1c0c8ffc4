"""Encoders that were trained: made sick on purpose, one for each disease that training can give, and healthy ones."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet import losses, methods, views
from reglet.backbones import ConvNet, projector
from reglet.data import InMemory, canvas_digits
from reglet.diagnostics.verdict import Verdict, diagnose
from reglet.evaluate.examine import look
from reglet.export import preprocessing
from reglet.method import Batch, Method
from reglet.methods import JointEmbedding
from reglet.types import total

SIDE = 16


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@cache
def digits(part: str) -> InMemory:
    found = canvas_digits(part)  # type: ignore[arg-type]
    small = F.avg_pool2d(found.images.float(), 2).round().byte()
    return InMemory(small, labels=found.labels, name=f"small digits/{part}")


class Perceptron(nn.Module):
    """Without batch norm, which would hold features apart by itself."""

    dim = 64

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 128), nn.ReLU(), nn.Linear(128, self.dim))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        return y


def conv() -> ConvNet:
    return ConvNet(widths=(16, 32, 64), stride=2)


def joint(loss: losses.base.OnViews) -> JointEmbedding:
    net = conv()
    return JointEmbedding(net, loss, projector=projector(net.dim, widths=(128, 32)))


def train(make: Callable[[], Method], *, batch: int = 64, steps: int = 60, lr: float = 2e-3, seed: int = 0) -> Method:
    torch.manual_seed(seed)
    method, images, policy = make(), digits("train"), views.policy("digits", size=SIDE)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], lr=lr, weight_decay=0.01)
    generator = torch.Generator().manual_seed(seed)
    for step in range(1, steps + 1):
        index = torch.randint(len(images), (batch,), generator=generator)
        batch_views = policy.apply(images.batch(index), policy.draw(batch, generator))
        labels = None if images.labels is None else images.labels[index]
        loss = total(method(Batch(batch_views, n_global=2, labels=labels)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.after_step(step, steps)
    return method


def verdict(method: Method, *, batch: int = 64) -> Verdict:
    images, policy = digits("test"), views.policy("digits", size=SIDE)
    with torch.no_grad():
        plain = method.eval().encode(preprocessing(SIDE)(images.images))
    return diagnose(look(method, images, policy, features=plain, batch=batch))


HEALTHY: dict[str, Callable[[], Method]] = {
    "visreg": lambda: joint(losses.VISRegLoss(lam=0.6, slices=128)),
    "lejepa": lambda: joint(losses.LeJEPALoss(slices=128)),
    "swd": lambda: joint(losses.SWDLoss(slices=128)),
    "vicreg": lambda: joint(losses.VICRegLoss()),
    "barlow": lambda: joint(losses.BarlowTwinsLoss(weight=0.02)),
    "simclr": lambda: joint(losses.NTXentLoss()),
    "smi": lambda: joint(losses.SMILoss()),
    "byol": lambda: methods.BYOL(conv(), projector=_head(64, 32), predictor=_head(32, 32)),
    "simsiam": lambda: methods.SimSiam(conv(), projector=_head(64, 32), predictor=_head(32, 32)),
    "supervised": lambda: methods.Supervised(conv(), classes=10),
}


def _head(d: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, out))


@pytest.mark.parametrize("name", HEALTHY)
def test_no_false_alarm(name: str) -> None:
    found = verdict(train(HEALTHY[name]))
    assert found.name == "healthy", (found.findings, found.numbers)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["visreg", "vicreg"])
def test_no_false_alarm_with_other_seeds(name: str, seed: int) -> None:
    found = verdict(train(HEALTHY[name], seed=seed))
    assert found.name == "healthy", (found.findings, found.numbers)


def test_complete_collapse() -> None:
    """Invariance alone, on the features themselves."""
    found = verdict(
        train(
            lambda: JointEmbedding(Perceptron(), losses.VISRegLoss(lam=0.0, slices=8), projector=nn.Identity()),
            steps=300,
        )
    )
    assert found.name == "complete collapse", found.numbers
    assert "negligible regularizer" in [f.name for f in found.findings]


def test_dimensional_collapse() -> None:
    """VICReg without its covariance term: every dimension varies, and all of them together."""
    found = verdict(train(lambda: joint(losses.VICRegLoss(covariance=0.0)), steps=200))
    assert found.name == "dimensional collapse", found.numbers


def test_dead_projector() -> None:
    """Invariance alone, solved by a projector without batch norm before the encoder has to."""
    head = lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))  # noqa: E731
    found = verdict(
        train(lambda: JointEmbedding(conv(), losses.VISRegLoss(lam=0.0, slices=8), projector=head()), steps=200)
    )
    assert found.name == "dead projector", found.numbers


class Noise(nn.Module):
    """As many rows as came in, of anything."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.randn_like(x)


def test_informationless_projector() -> None:
    method = train(HEALTHY["visreg"])
    assert isinstance(method, JointEmbedding)
    method.projector = nn.Sequential(method.projector, Noise())
    assert verdict(method).name == "informationless projector"


def test_batch_norm_leakage() -> None:
    """Batches of four: an embedding says more about its mates than about its image."""
    found = verdict(train(HEALTHY["visreg"], batch=4, steps=200, seed=1), batch=4)  # 4 of 6 seeds come to leak surely
    assert "batch-norm leakage" in [f.name for f in found.findings], found.numbers


def test_stale_statistics() -> None:
    method = train(HEALTHY["visreg"])
    for module in method.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean += 3 * module.running_var.sqrt()  # those of quite other images
    found = verdict(method)
    assert "batch-norm leakage" in [f.name for f in found.findings], found.numbers


def test_gradient_shares() -> None:
    weak = verdict(train(lambda: joint(losses.VICRegLoss(variance=0.01, covariance=0.001)), steps=50))
    assert "negligible regularizer" in [f.name for f in weak.findings], weak.numbers
    strong = verdict(train(lambda: joint(losses.VISRegLoss(lam=0.9999, slices=128)), steps=100))
    assert strong.name == "overwhelming regularizer", strong.numbers


def test_n_below_d() -> None:
    found = verdict(train(HEALTHY["vicreg"]), batch=24)
    assert found.name == "healthy"
    assert [f.name for f in found.remarks] == ["the batch is smaller than the embedding is wide"]
    assert found.exit_code == 0
