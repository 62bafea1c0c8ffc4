"""The log of a run: metrics.jsonl, TensorBoard, Weights & Biases, and the progress on the screen."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from reglet.engine.metrics import Metrics
from reglet.engine.progress import Progress
from reglet.engine.state import Reading


@runtime_checkable
class Logger(Protocol):
    def log(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    def __init__(self, out: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("loggers=tensorboard needs it: pip install 'reglet[tensorboard]'") from error
        self.writer = SummaryWriter(str(out / "tensorboard"))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)

    def close(self) -> None:
        self.writer.close()


class WandB:
    """Offline unless WANDB_MODE says otherwise, because a training run should not wait for a network."""

    def __init__(self, out: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise ImportError("loggers=wandb needs it: pip install 'reglet[wandb]'") from error
        mode = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(dir=str(out), name=out.name, config=dict(config), mode=mode, resume="allow")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        self.run.finish()


def build_loggers(names: str, out: Path, config: Mapping[str, Any]) -> list[Logger]:
    known: dict[str, Callable[[], Logger]] = {
        "tensorboard": lambda: TensorBoard(out),
        "wandb": lambda: WandB(out, config),
    }
    return [known[name]() for name in filter(None, names.split(","))]


class Journal:
    """Only the first rank prints and writes files."""

    def __init__(
        self,
        path: Path,
        progress: Progress,
        *,
        every: int,
        loggers: str = "",
        config: Mapping[str, Any],
        writes: bool,
        noted: Mapping[str, float] | None = None,
    ) -> None:
        """noted: `self.noted` at the checkpoint from which a run is resumed."""
        self.progress, self.every = progress, every
        self.loggers = build_loggers(loggers, path.parent, config) if writes else []
        self.metrics = Metrics(path, start=progress.start) if writes else None
        self.last: dict[str, float] = self.metrics.last if self.metrics else {}
        # The largest gradient norm since the last line, so that no spike between two lines is missed.
        self.noted: dict[str, float] = dict(noted or {})

    def due(self, done: int) -> bool:
        """Whether step `done` has a line in metrics.jsonl."""
        return done % self.every == 0 or done == self.progress.steps

    def step(self, done: int, read: Reading | None, *, lr: float) -> None:
        """read: the numbers of the step; None if the device was not asked."""
        self.progress.tick(done)
        if read is None:
            return
        if read.norm is not None:
            self.noted["grad_norm"] = max(self.noted.get("grad_norm", read.norm), read.norm)
        if self.due(done):
            speed, epoch = self.progress.samples_per_second, done / self.progress.per_epoch
            loss = {"loss": sum(read.terms.values()), **read.terms, **self.noted}
            self.noted = {}
            self.log(done, {**loss, "lr": lr, "epoch": epoch, "images_per_second": speed})
        self.progress.show(done, read.terms)

    def log(self, done: int, found: Mapping[str, float | str]) -> None:
        """Logs numbers, and to metrics.jsonl and the screen also words, such as the doctor's verdict."""
        numbers = {name: value for name, value in found.items() if not isinstance(value, str)}
        self.last |= numbers
        if "knn" in numbers:
            self.progress.knn = numbers["knn"]
        if "doctor.verdict" in found:
            self.progress.doctor = str(found["doctor.verdict"])
        if self.metrics:
            self.metrics.log(done, found)
        for logger in self.loggers:
            logger.log(done, numbers)

    def close(self) -> None:
        self.progress.close()
        if self.metrics:
            self.metrics.close()
        for logger in self.loggers:
            logger.close()
