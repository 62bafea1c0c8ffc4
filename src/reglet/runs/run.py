"""A run, and the store of finished runs: one file each, named by a digest of everything that the run depends on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reglet.engine.run_folder import write_json

Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One arm on one seed and fold.  Runs with the same seed and fold are paired.

    fold: the part that is tested, or the data set; "" if there is only one.
    settings: everything else that the result depends on, with the digest of the data.  JSON must be able to hold it.

    >>> Run("SMI", 3, fold="sketch", settings={"steps": 100}).name
    'SMI, sketch, seed 3'
    """

    arm: str
    seed: int
    fold: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> Json:
        return as_read({"arm": self.arm, "seed": self.seed, "fold": self.fold, "settings": dict(self.settings)})

    @property
    def key(self) -> str:
        """
        >>> Run("SMI", 0).key == Run("SMI", 0, settings={}).key != Run("SMI", 1).key
        True
        """
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return ", ".join(part for part in (self.arm, self.fold, f"seed {self.seed}") if part)

    def __hash__(self) -> int:
        return hash(self.key)


def as_read(value: Json) -> Json:
    """`value` as it comes back from a file: tuples become lists."""
    plain: Json = json.loads(json.dumps(value))
    return plain


@dataclass(frozen=True)
class Finished:
    """about: facts that the result should not depend on: commit, date, seconds.

    >>> Finished(Run("SMI", 0), {"knn": 0.61}, {"seconds": 12.0}).scores["knn"]
    0.61
    """

    run: Run
    scores: Json
    about: Json


def store(finished: Finished, folder: Path) -> None:
    """Writes the whole file or nothing, even if the process is killed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     store(Finished(Run("SMI", 0), {"knn": 0.61}, {}), Path(place))
    ...     stored(Run("SMI", 0), Path(place)).scores
    {'knn': 0.61}
    """
    write_json(
        folder / f"{finished.run.key}.json",
        {"run": finished.run.describe(), "scores": finished.scores, "about": finished.about},
    )


def stored(run: Run, folder: Path) -> Finished | None:
    """The stored result of this run, or None.  A file that describes another run counts as None.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     stored(Run("SMI", 0), Path(place)) is None
    True
    """
    path = folder / f"{run.key}.json"
    if not path.exists():
        return None
    found: Json = json.loads(path.read_text())
    if found.get("run") != run.describe():
        return None
    return Finished(run, found["scores"], found["about"])
