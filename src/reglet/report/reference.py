"""What the geometry of a healthy run looks like: measured once, stored beside this file as healthy.json.

    python -m reglet.report.reference runs/a runs/b runs/c

averages the shapes of finished runs (seeds of one configuration) at 64 shares of their directions, and writes the file.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from reglet.engine.run_folder import write_json
from reglet.report.gather.geometry import Shape, geometry
from reglet.report.gather.repeat import read_stored, repeat
from reglet.report.gather.source import open_source

FILE = "healthy.json"
SHARES = 64


@dataclass(frozen=True)
class Reference:
    """Means over runs.  eigenvalues, std: over their mean, at `share` of the directions, as is `explained`."""

    says: str
    commands: list[str]
    share: list[float]
    eigenvalues: list[float]
    explained: list[float]
    std: list[float]
    rank_share: float  # effective rank over that of noise of the same n and d
    uniformity: float
    alignment: float


def healthy() -> Reference:
    return Reference(**json.loads(files("reglet.report").joinpath(FILE).read_text()))


def average(shapes: Sequence[Shape], *, says: str, commands: list[str]) -> Reference:
    """Curves at common shares of the directions; eigenvalues by their logarithms."""
    share = np.geomspace(1 / min(s.d for s in shapes), 1.0, SHARES)

    def mean(curves: Sequence[Sequence[float]], *, log: bool = False) -> list[float]:
        rows = []
        for shape, curve in zip(shapes, curves, strict=True):
            at = np.arange(1, len(curve) + 1) / shape.d
            y = np.log(np.maximum(curve, 1e-12)) if log else np.asarray(curve)
            rows.append(np.interp(share, at, y))
        found = np.mean(rows, 0)
        return [float(f"{v:.4g}") for v in (np.exp(found) if log else found)]

    aligned = [s.alignment for s in shapes if s.alignment is not None]
    return Reference(
        says,
        commands,
        [float(f"{v:.4g}") for v in share],
        mean([s.eigenvalues for s in shapes], log=True),
        mean([s.explained for s in shapes]),
        mean([s.std for s in shapes]),
        float(np.mean([s.rank / s.noise_rank for s in shapes])),
        float(np.mean([s.uniformity for s in shapes])),
        float(np.mean(aligned)),
    )


def main(runs: list[Path]) -> None:
    shapes, commands = [], []
    for run in runs:
        source = open_source(run)
        shapes.append(geometry(source, source.features(source.test)).trained)
        words = (repeat(read_stored(run)).command or "").split()
        commands.append(" ".join(word for word in words if not word.startswith("out=")))
    about = read_stored(runs[0])
    says = (
        f"{len(runs)} seeds of {about['method']} with {about['model']} on {about['data']}, {about['epochs']} epochs, "
        f"{shapes[0].n} test images"
    )
    write_json(Path(__file__).with_name(FILE), asdict(average(shapes, says=says, commands=commands)))


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
