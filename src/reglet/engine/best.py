"""Which weights of a run were the best by a score, and when to stop early."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
BEST = "best.safetensors"
LABEL_FREE = ("rankme", "lidar", "alphareq")
CRITERIA = (*LABEL_FREE, "knn")


@dataclass
class Best:
    """name: of the score.  patience: looks without a better score until `exhausted`; 0: never.

    value, step: of the best so far.  since: looks since then.  They are in the checkpoint, so a resumed run decides
    like one that was never stopped.

    >>> best = Best("rankme", patience=2)
    >>> [best.see(value, step) for step, value in enumerate([3.0, 5.0, 5.0, 4.0])], best.step, best.exhausted
    ([True, True, False, False], 1, True)
    """

    name: str
    patience: int = 0
    value: float | None = None
    step: int = 0
    since: int = 0

    def see(self, value: float, step: int) -> bool:
        """Whether this is the best so far."""
        better = self.value is None or merit(self.name, value) > merit(self.name, self.value)
        if better:
            self.value, self.step = value, step
        self.since = 0 if better else self.since + 1
        return better

    @property
    def exhausted(self) -> bool:
        return bool(self.patience) and self.since >= self.patience

    def state(self) -> Json:
        return {"value": self.value, "step": self.step, "since": self.since}

    def restore(self, state: Json) -> None:
        self.value, self.step, self.since = state["value"], int(state["step"]), int(state["since"])


def merit(name: str, value: float) -> float:
    """How good a score is; larger is better.  alpha-ReQ is best at 1.

    >>> merit("alphareq", 1.5), merit("lidar", 20.0)
    (-0.5, 20.0)
    """
    return -abs(value - 1) if name == "alphareq" else value
