"""A short run on a layout's training images, which may be killed: what `tests.data.test_contract` compares."""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.engine.toy import toy
from torch import Tensor

from reglet import views
from reglet.data import Images, load
from reglet.engine.feed import ImageFeed
from reglet.engine.settings import Settings
from reglet.train import fit

BATCH, STEPS = 8, 10  # two epochs of forty images


class Interrupted:
    """Two views of SMI's; before step `at` something happens."""

    def __init__(self, at: int = -1, happens: Callable[[], None] = lambda: None) -> None:
        self.policy, self.at, self.happens, self.steps = views.policy("smi", size=16), at, happens, 0
        self.n_global, self.crops_whole_images = self.policy.n_global, True

    def draw(self, n: int, generator: torch.Generator | None = None, **more: Any) -> Any:
        return self.policy.draw(n, generator, **more)

    def crops(self, draws: Any, **sizes: Any) -> Any:
        return self.policy.crops(draws, **sizes)

    def apply(self, images: Tensor, draws: Any) -> list[Tensor]:
        self._count()
        return self.policy.apply(images, draws)

    def finish(self, crops: Sequence[Tensor], draws: Any, **how: Any) -> list[Tensor]:
        self._count()
        return self.policy.finish(crops, draws, **how)

    def _count(self) -> None:
        if self.steps == self.at:
            self.happens()
        self.steps += 1


def training_part(spec: str, *, keep: bool = True, workers: int = 0, table: str = "") -> Images:
    split = "" if spec.endswith(".npy") else "train"
    return load(spec, split=split, table=table, keep=keep, workers=workers)


def train(images: Images, out: str, policy: Interrupted | None = None, **settings: Any) -> None:
    s = Settings(out=out, steps=STEPS, batch=BATCH, accelerator="cpu", save_every=3, **settings)
    fit(toy(norm=False), ImageFeed(images, policy or Interrupted(), batch=BATCH), s, shown=False)


def main(words: Sequence[str]) -> None:
    """spec=, table=, out=, and kill= or resume=true; images are streamed."""
    torch.set_num_threads(1)
    given = dict(word.split("=", 1) for word in words)
    at = int(given.get("kill", -1))
    images = training_part(given["spec"], keep=False, table=given.get("table", ""))
    dying = Interrupted(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    train(images, given["out"], dying, resume=given.get("resume") == "true")
