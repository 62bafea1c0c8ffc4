"""The progress of training on stderr: step, terms, samples per second, time left, the last kNN score."""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack

from reglet import progress


class Progress:
    """A bar on a screen.  In a log, a line for each epoch, and one after 25 s of silence.

    If it is not `shown` itself, it still moves the bar of a larger work.
    """

    def __init__(self, *, start: int, steps: int, per_epoch: int, batch: int, shown: bool) -> None:
        self.start, self.steps, self.per_epoch, self.batch, self.shown = start, steps, per_epoch, batch, shown
        self.times: deque[tuple[int, float]] = deque([(start, time.perf_counter())], maxlen=50)
        self.last_line = time.perf_counter()
        self.knn: float | None = None
        self.doctor = ""  # its last verdict
        self.open = ExitStack()
        self.open.enter_context(progress.shown(shown))
        self.work = self.open.enter_context(progress.work("training", total=steps, done=start))

    def close(self) -> None:
        self.open.close()

    def tick(self, done: int) -> None:
        self.times.append((done, time.perf_counter()))
        self.work.advance(done - self.work.done)

    def wants_line(self, done: int) -> bool:
        """Whether a line is due after step `done`: at the end of an epoch or of the run, or after a long silence."""
        if not self.shown or progress.in_bars():
            return False
        ends = done % self.per_epoch == 0 or done == self.steps
        return ends or time.perf_counter() - self.last_line > progress.QUIET

    @property
    def samples_per_second(self) -> float:
        (first, since), (last, now) = self.times[0], self.times[-1]
        return (last - first) * self.batch / (now - since) if now > since else 0.0

    def show(self, done: int, terms: Mapping[str, float]) -> None:
        numbers = "  ".join(f"{name} {term:.4g}" for name, term in terms.items())
        tail = ("" if self.knn is None else f"  kNN {self.knn:.1%}") + (f"  {self.doctor}" if self.doctor else "")
        speed = f"{self.samples_per_second:.0f} images/s"
        self.work.note(f"{speed}  {numbers}{tail}")
        if self.wants_line(done):
            left = (self.steps - done) * self.batch / max(self.samples_per_second, 1e-9)
            epoch = -(-done // self.per_epoch)
            when = f"{speed}, {progress.duration(left)} left"
            progress.line(f"epoch {epoch}  step {done}/{self.steps}  {numbers}{tail}  {when}")
            self.last_line = time.perf_counter()
