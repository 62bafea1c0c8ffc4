"""metrics.jsonl: one line for each measurement, in the order of steps."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reglet.atomic import replacing


class Metrics:
    """Appends to the file.  Rows after step `start` are from a run that was killed, and are dropped."""

    def __init__(self, path: Path, *, start: int = 0) -> None:
        self.path = path
        kept = [row for row in read_metrics(path) if row["step"] <= start] if path.exists() else []
        self.last = {key: value for row in kept for key, value in row.items() if key not in ("step", "time")}
        with replacing(path) as fresh:
            fresh.write_text("".join(json.dumps(row) + "\n" for row in kept))
        self.file = path.open("a")

    def log(self, step: int, found: Mapping[str, float | str]) -> None:
        row = {"step": step, "time": round(time.time(), 3), **found}
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All complete lines.  A killed run may have left half a line at the end."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def read_scores(path: Path) -> dict[str, float]:
    """The last value of each score.  Rows of training steps, which have a learning rate, are left out."""
    rows = [row for row in read_metrics(path) if "doctor.verdict" not in row] if path.exists() else []
    found = {key: value for row in rows if "lr" not in row for key, value in row.items()}
    return {key: value for key, value in found.items() if key not in ("step", "time")}
