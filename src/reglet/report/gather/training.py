"""metrics.jsonl as curves."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reglet.diagnostics.training import gradient_spikes
from reglet.engine.metrics import read_metrics
from reglet.engine.run_folder import METRICS
from reglet.report.gather.missing import Missing

NOT_TERMS = frozenset(
    {"step", "time", "epoch", "lr", "loss", "images_per_second", "knn", "accuracy", "grad_norm", "rank"}
)


@dataclass(frozen=True)
class Curve:
    steps: list[int]
    values: list[float | None]  # None where it was not finite


@dataclass(frozen=True)
class Look:
    """What the doctor said at a step: "healthy", "suspicion", or the name of a disease that is sure.

    says: the whole sentence, where a disease is sure.
    """

    step: int
    verdict: str
    says: str = ""

    @property
    def sure(self) -> bool:
        return self.verdict not in ("healthy", "suspicion")


@dataclass(frozen=True)
class Training:
    """terms: of the loss, the loss itself first.  spikes: places in `grad_norm` that jut out.

    epochs: done, and asked for where the configuration says so.  looks: of the doctor, if one watched.
    """

    terms: dict[str, Curve]
    lr: Curve
    knn: Curve
    grad_norm: Curve
    spikes: list[int]
    rank: Curve
    epochs: tuple[float, int | None]
    looks: tuple[Look, ...] = ()

    @property
    def finished(self) -> bool:
        done, asked = self.epochs
        return asked is None or done >= asked - 1e-6

    @property
    def first_alarm(self) -> Look | None:
        return next((look for look in self.looks if look.sure), None)

    @property
    def last_step(self) -> int:
        return max(curve.steps[-1] for curve in [*self.terms.values(), self.lr] if curve.steps)


def training(run: Path, config: dict[str, Any]) -> Training | Missing:
    path = run / METRICS
    if not path.exists():
        return Missing(f"there is no {METRICS}: the run was not started, or this is an exported encoder alone")
    rows = read_metrics(path)
    if not any("loss" in row for row in rows):
        return Missing(f"{METRICS} has no line of a step yet")
    # A row of a step has its loss; the other rows are scores.
    names = dict.fromkeys(key for row in rows if "loss" in row for key in row if key not in NOT_TERMS)
    terms = {name: curve(rows, name) for name in ("loss", *names)}
    norm = curve(rows, "grad_norm")
    asked = None if config.get("steps") else config.get("epochs")
    done = max((float(row["epoch"]) for row in rows if "epoch" in row), default=0.0)
    spikes = _spikes(norm)
    return Training(
        terms, curve(rows, "lr"), curve(rows, "knn"), norm, spikes, curve(rows, "rank"),
        (done, asked if isinstance(asked, int) else None), looks(rows),
    )  # fmt: skip


def curve(rows: list[dict[str, Any]], key: str) -> Curve:
    """
    >>> curve([{"step": 1, "a": 0.5}, {"step": 2}, {"step": 3, "a": float("nan")}], "a")
    Curve(steps=[1, 3], values=[0.5, None])
    """
    found = [row for row in rows if isinstance(row.get(key), int | float)]
    return Curve([int(row["step"]) for row in found], [_finite(row[key]) for row in found])


def looks(rows: list[dict[str, Any]]) -> tuple[Look, ...]:
    """
    >>> looks([{"step": 100, "doctor.verdict": "healthy"}, {"step": 110, "loss": 1.0}])
    (Look(step=100, verdict='healthy', says=''),)
    """
    found = [row for row in rows if "doctor.verdict" in row]
    return tuple(Look(int(row["step"]), str(row["doctor.verdict"]), str(row.get("doctor.says", ""))) for row in found)


def _finite(value: int | float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _spikes(norm: Curve) -> list[int]:
    values = [math.nan if v is None else v for v in norm.values]
    if len(values) < 2 or math.isnan(values[0]):
        return []
    return gradient_spikes(values).steps
