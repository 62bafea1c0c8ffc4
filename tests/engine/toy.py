"""A method, a view policy and images small enough to train in a second, and a run of them that may be killed."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn

from reglet.data.memory import InMemory
from reglet.engine.feed import ImageFeed, ViewPolicy
from reglet.engine.metrics import Metrics
from reglet.engine.monitor import AtCheckpoints, Trained
from reglet.engine.settings import Settings
from reglet.losses import SWD, BarlowTwinsLoss, LeJEPALoss, VISRegLoss
from reglet.method import Batch, Method
from reglet.train import fit
from reglet.types import Terms


@dataclass(frozen=True)
class Shift:
    """How far each image is brightened."""

    by: Tensor

    def take(self, which: slice) -> "Shift":
        return Shift(self.by[which])


class Brighten:
    """Views that differ in brightness and noise."""

    def __init__(self, *, views: int = 2) -> None:
        self.n_global, self.views = views, views

    def draw(self, n: int, generator: torch.Generator | None = None) -> list[Shift]:
        return [Shift(torch.rand(n, generator=generator)) for _ in range(self.views)]

    def apply(self, images: Tensor, draws: Sequence[Shift]) -> list[Tensor]:
        return [
            images.to(torch.get_default_dtype()) / 255 - draw.by[:, None, None, None].to(images.device)
            for draw in draws
        ]


class Toy(Method):
    """A conv net, with batch norm or without, under any view loss."""

    def __init__(self, loss: nn.Module, *, norm: bool, dropout: float = 0.0) -> None:
        super().__init__()
        middle = nn.BatchNorm2d(8) if norm else nn.Identity()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, bias=False),
            middle,
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv2d(8, 12, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head, self.loss = nn.Linear(12, 8), loss
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, batch: Batch) -> Terms:
        return self.objective(self.embed(batch.views), n_global=batch.n_global)

    def embed(self, views: Sequence[Tensor]) -> list[Tensor]:
        return [self.head(self.backbone(v)) for v in views]

    def objective(self, z: Sequence[Tensor], *, n_global: int) -> Terms:
        return self.loss.terms(list(z))

    def encode(self, x: Tensor) -> Tensor:
        return self.backbone(x)

    def after_step(self, step: int, steps: int) -> None:
        self.seen += 1


def images(n: int = 96, *, seed: int = 0) -> InMemory:
    """Three classes that differ in colour."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    x = torch.randint(0, 120, (n, 3, 10, 10), generator=g)
    x[torch.arange(n), labels] += 100
    return InMemory(x.to(torch.uint8), labels=labels, name="toy")


def toy(kind: str = "visreg", *, norm: bool = True, dropout: float = 0.0) -> Toy:
    torch.manual_seed(0)
    losses = {
        "visreg": lambda: VISRegLoss(slices=64, shared_slices=True, gather=True),
        "barlow": lambda: BarlowTwinsLoss(gather=True),
        "sigreg": lambda: LeJEPALoss(slices=64, shared_slices=True, gather=True),
        "swd": lambda: SWD(slices=64, shared_slices=True, gather=True),
    }
    return Toy(losses[kind](), norm=norm, dropout=dropout)


def feed(settings: Settings, *, data: InMemory | None = None, policy: ViewPolicy | None = None) -> ImageFeed:
    return ImageFeed(data or images(), policy or Brighten(), batch=settings.batch, seed=settings.seed)


def no_disk() -> dict[str, float]:
    raise OSError("the disk is gone")


def main(words: Sequence[str]) -> None:
    """A run with any setting as key=value, and loss=, norm=, dropout=, double=, kill=, pause=, fail=, nan=,
    breaks=."""
    torch.set_num_threads(1)
    given = dict(word.split("=", 1) for word in words)
    if given.pop("double", "0") == "1":
        torch.set_default_dtype(torch.float64)
    kill, pause = int(given.pop("kill", -1)), float(given.pop("pause", 0))
    fail, nan = (int(given.pop(name, -1)) for name in ("fail", "nan"))  # on the second rank alone
    fail, nan = (fail, nan) if os.environ.get("RANK") == "1" else (-1, -1)
    breaks = given.pop("breaks", "")  # on the first rank alone: what it writes, or its score
    breaks = breaks if os.environ.get("RANK", "0") == "0" else ""
    norm = given.pop("norm", "1") == "1"
    method = toy(given.pop("loss", "visreg"), norm=norm, dropout=float(given.pop("dropout", 0)))
    if nan >= 0:
        plain = method.objective
        method.objective = lambda z, **more: (
            plain(z, **more)
            | {  # type: ignore[method-assign]
                "extra": z[0].mean().detach() * (torch.nan if int(method.seen) == nan else 0.0)
            }
        )
    kinds = {f.name: type(f.default) for f in fields(Settings)}
    values = {k: v == "true" if kinds[k] is bool else kinds[k](v) for k, v in given.items()}

    class Mortal(Brighten):
        steps = 0

        def apply(self, images: Tensor, draws: Sequence[Shift]) -> list[Tensor]:
            if self.steps == kill:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.steps == fail:
                raise OSError("the disk is gone")
            self.steps += 1
            time.sleep(pause)
            return super().apply(images, draws)

    settings = Settings(**values)
    try:
        if breaks == "journal":
            Metrics.log = lambda *_: no_disk()  # type: ignore[method-assign]

        def score(model: Trained) -> dict[str, float]:
            """Two calls of the network, between which the disk may go."""
            x = torch.zeros(2, 3, 10, 10, dtype=torch.get_default_dtype())
            before = model.call(lambda m, x: m.encode(x), x)
            if breaks == "score":
                no_disk()
            return {"apart": float((model.call(lambda m, x: m.encode(x), x) - before).abs().max())}

        watch = [AtCheckpoints(score, count=8)]
        fit(method, feed(settings, policy=Mortal()), settings, watch=watch, shown=False)
    except Exception as error:
        Path(settings.out, f"error-{os.environ.get('RANK', 0)}").write_text(f"{type(error).__name__}: {error}")
        raise
