"""What a run says of itself: metrics.jsonl, other loggers, and the progress on the screen."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reglet.engine.loggers import build_loggers
from reglet.engine.metrics import Metrics
from reglet.engine.progress import Progress
from reglet.types import Terms, total


class Journal:
    """Silent, and without files, on all ranks but the first."""

    def __init__(
        self,
        path: Path,
        progress: Progress,
        *,
        every: int,
        loggers: str = "",
        config: Mapping[str, Any],
        writes: bool,
    ) -> None:
        self.progress, self.every = progress, every
        self.loggers = build_loggers(loggers, path.parent, config) if writes else []
        self.metrics = Metrics(path, start=progress.start) if writes else None
        self.last: dict[str, float] = {}
        self.largest: float | None = None  # gradient norm since the last line, so that no spike falls between two

    def step(self, done: int, terms: Terms, *, lr: float, norm: float | None = None) -> None:
        self.progress.tick(done)
        if norm is not None:
            self.largest = norm if self.largest is None else max(self.largest, norm)
        if done % self.every and done != self.progress.steps:
            return
        numbers = {name: float(term) for name, term in terms.items()}
        speed, epoch = self.progress.images_per_second, done / self.progress.per_epoch
        steepest = {} if self.largest is None else {"grad_norm": self.largest}
        self.largest = None
        loss = {"loss": float(total(terms)), **numbers, **steepest}
        self.log(done, {**loss, "lr": lr, "epoch": epoch, "images_per_second": speed})
        self.progress.show(done, numbers)

    def log(self, done: int, numbers: Mapping[str, float]) -> None:
        self.last |= numbers
        if "knn" in numbers:
            self.progress.knn = numbers["knn"]
        if self.metrics:
            self.metrics.log(done, numbers)
        for logger in self.loggers:
            logger.log(done, numbers)

    def close(self) -> None:
        self.progress.close()
        if self.metrics:
            self.metrics.close()
        for logger in self.loggers:
            logger.close()
