"""Finished runs as one file of the repository, one line for each.  Another machine can then continue an experiment.

    {"arm", "seed", "fold", "digest", "scores", "about"}

The digest is the run's key, which depends on every setting and on the data.  So a design that has changed finds none of
its runs here, and computes them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reglet.engine.run_folder import write_text
from reglet.runs.run import Finished, Json, Run, store, stored

DIGITS = 6  # significant, of scores and seconds


def write_ledger(path: Path, results: Sequence[Finished]) -> None:
    """Adds the results.  Lines of other runs stay: a recipe may be half done at two lengths.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     write_ledger(Path(place, "smi.jsonl"), [Finished(Run("SMI", 0), {"knn": 0.61}, {})])
    ...     len(Path(place, "smi.jsonl").read_text().splitlines())
    1
    """
    rows = read_ledger(path) | {r.run.key: _row(r) for r in results}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows.values()))


def read_ledger(path: Path) -> dict[str, Json]:
    """Digest -> line.  Empty where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["digest"]: row for row in map(json.loads, lines)}


def restore(path: Path, runs: Sequence[Run], folder: Path) -> int:
    """Copies the runs that the ledger has and `folder` lacks into `folder`.  Returns their number.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     write_ledger(Path(place, "smi.jsonl"), [Finished(Run("SMI", 0), {"knn": 0.61}, {})])
    ...     restore(Path(place, "smi.jsonl"), [Run("SMI", 0), Run("SMI", 1)], Path(place, "runs"))
    1
    """
    rows, count = read_ledger(path), 0
    for run in runs:
        row = rows.get(run.key)
        if row is None or stored(run, folder) is not None:
            continue
        if (row["arm"], row["seed"], row["fold"]) != (run.arm, run.seed, run.fold):
            raise ValueError(f"{path}: the line of {run.key} is of the arm {row['arm']!r}, but the run is {run.name!r}")
        folder.mkdir(parents=True, exist_ok=True)
        store(Finished(run, row["scores"], row["about"]), folder)
        count += 1
    return count


def _row(r: Finished) -> Json:
    about = {"arm": r.run.arm, "seed": r.run.seed, "fold": r.run.fold, "digest": r.run.key}
    return {**about, "scores": _short(r.scores), "about": _short(r.about)}


def _short(values: Json) -> Json:
    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(one) for one in value]
        return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value

    return {key: short(value) for key, value in values.items()}
