"""What a run says of itself: metrics.jsonl, other loggers, and the progress on the screen."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reglet.engine.loggers import build_loggers
from reglet.engine.metrics import Metrics
from reglet.engine.progress import Progress
from reglet.engine.state import Reading


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
        noted: Mapping[str, float] | None = None,
    ) -> None:
        """noted: `self.noted` at the checkpoint from which a run goes on."""
        self.progress, self.every = progress, every
        self.loggers = build_loggers(loggers, path.parent, config) if writes else []
        self.metrics = Metrics(path, start=progress.start) if writes else None
        self.last: dict[str, float] = self.metrics.last if self.metrics else {}
        # The largest gradient norm since the last line, so that no spike falls between two lines.
        self.noted: dict[str, float] = dict(noted or {})

    def due(self, done: int) -> bool:
        """Whether step `done` has a line in metrics.jsonl."""
        return done % self.every == 0 or done == self.progress.steps

    def step(self, done: int, read: Reading | None, *, lr: float) -> None:
        """read: what is known of the step; None where nobody asked the device."""
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
        """Numbers, and words such as the doctor's verdict, which metrics.jsonl and the screen take."""
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
