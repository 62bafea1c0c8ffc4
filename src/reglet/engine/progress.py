"""The line that moves: step, terms, samples per second, time left, the last kNN score.  On stderr."""

import sys
import time
from collections import deque
from collections.abc import Mapping

QUIET = 30.0  # seconds after which a line is printed, also in the middle of an epoch


class Progress:
    """A rich bar on a terminal, where rich is installed; elsewhere a line per epoch, and one after 30 s of silence.

    Nothing if not `shown`.
    """

    def __init__(self, *, start: int, steps: int, per_epoch: int, batch: int, shown: bool) -> None:
        self.start, self.steps, self.per_epoch, self.batch, self.shown = start, steps, per_epoch, batch, shown
        self.times: deque[tuple[int, float]] = deque([(start, time.perf_counter())], maxlen=50)
        self.last_line = time.perf_counter()
        self.knn: float | None = None
        self.bar = _bar(start, steps) if shown and sys.stderr.isatty() else None

    def close(self) -> None:
        if self.bar:
            self.bar.stop()

    def tick(self, done: int) -> None:
        self.times.append((done, time.perf_counter()))
        if self.bar:
            self.bar.update(self.bar.task_ids[0], completed=done)

    def wants_line(self, done: int) -> bool:
        """Whether a line is due after step `done`: at the end of an epoch, of the run, or of a long silence."""
        if not self.shown or self.bar:
            return False
        ends = done % self.per_epoch == 0 or done == self.steps
        return ends or time.perf_counter() - self.last_line > QUIET

    @property
    def samples_per_second(self) -> float:
        (first, since), (last, now) = self.times[0], self.times[-1]
        return (last - first) * self.batch / (now - since) if now > since else 0.0

    def show(self, done: int, terms: Mapping[str, float]) -> None:
        if not self.shown:
            return
        numbers = "  ".join(f"{name} {term:.4g}" for name, term in terms.items())
        tail = "" if self.knn is None else f"  kNN {self.knn:.1%}"
        if self.bar:
            self.bar.update(self.bar.task_ids[0], numbers=numbers + tail, speed=self.samples_per_second)
        elif self.wants_line(done):
            left = (self.steps - done) * self.batch / max(self.samples_per_second, 1e-9)
            epoch = -(-done // self.per_epoch)
            speed = f"{self.samples_per_second:.0f} images/s, {left / 60:.1f} min left"
            print(f"epoch {epoch}  step {done}/{self.steps}  {numbers}{tail}  {speed}", file=sys.stderr, flush=True)
            self.last_line = time.perf_counter()


def _bar(start: int, steps: int):  # type: ignore[no-untyped-def]  # rich may be absent
    try:
        from rich import console, progress
    except ImportError:
        return None
    bar = progress.Progress(
        progress.TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
        progress.BarColumn(20),
        progress.TextColumn("{task.fields[numbers]}", markup=False),
        progress.TextColumn("{task.fields[speed]:.0f} images/s"),
        progress.TimeRemainingColumn(),
        refresh_per_second=4,
        console=console.Console(stderr=True),
    )
    bar.add_task("", total=steps, completed=start, numbers="", speed=0.0)
    bar.start()
    return bar
