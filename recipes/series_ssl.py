"""VISReg and SMI off images: spoken digits as log-mel and windows of server telemetry, by 1-D views.

Paper     none: the papers of SMI and VISReg have images only
Command   python -m recipes.series_ssl
Machine   not run yet
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.console import Console

from recipes import arms
from recipes.arms import REPO, Result, interval, paired
from reglet.diagnostics.rankme import rankme
from reglet.tasks.config import AUTO
from reglet.tasks.series_ssl import TASK
from reglet.tasks.series_ssl.config import SeriesSSLConfig
from reglet.tasks.series_ssl.score import score
from reglet.tasks.series_ssl.series import Series

FILES = {"fsdd": "fsdd_logmel.npz", "smd3": "smd3.npz"}
ARMS = ("raw", "random", "none", "visreg", "smi", "visreg + SIM", "smi + SIM")


@dataclass(frozen=True)
class Run(arms.Run):
    """Runs that differ in `arm` only are paired.  raw: the series themselves, without a network; it has no seeds."""

    series: str
    arm: str
    seed: int
    data: str  # digest of the files
    steps: int = 120
    batch: int = 128


def config_of(run: Run, folder: Path) -> SeriesSSLConfig:
    loss, _, sim = run.arm.partition(" + ")
    return SeriesSSLConfig(
        data=str(folder / FILES[run.series]),
        loss="random" if loss == "raw" else loss,
        sim=AUTO if sim else "",
        pool=2,  # of the digits, to 20 bands x 40 frames
        steps=run.steps,
        batch=run.batch,
    )


@cache
def series(path: str) -> Series:
    return TASK.load(SeriesSSLConfig(data=path, pool=2))


def compute(run: Run, folder: Path) -> Result:
    config = config_of(run, folder)
    data = series(config.data)
    if run.arm == "raw":
        train, test = data.train.flatten(1), data.test.flatten(1)
        return {"score": 100 * score(train, test, data, neighbours=config.neighbours), "rank": rankme(test)}
    outcome = TASK.train(config, data, seed=run.seed, sim=bool(config.sim))
    return {"score": 100 * outcome.scores["score"], "rank": outcome.scores["rank"]}


def folder_of(path: Path) -> Path:
    return path


def digest(folder: Path) -> str:
    missing = [name for name in FILES.values() if not (folder / name).exists()]
    if missing:
        raise SystemExit(f"no {' and '.join(missing)} in {folder}: give --data the folder that has them")
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in FILES.values())).hexdigest()[:16]


def summarise(results: Sequence[Result]) -> list[Result]:
    """A row for each set and arm: the score, and its paired difference to random, to none and to the arm less SIM."""
    cells: dict[tuple[str, str], dict[int, Result]] = {}
    for result in results:
        run = Run(**result["run"])
        cells.setdefault((run.series, run.arm), {})[run.seed] = result
    rows = []
    for (name, arm), mine in cells.items():
        scores = {seed: r["score"] for seed, r in mine.items()}
        row: Result = {"series": name, "arm": arm, "score": interval(list(scores.values()))}
        row["rank"] = interval([r["rank"] for r in mine.values()])[0]
        for other in ("random", "none", arm.removesuffix(" + SIM")):
            if other != arm and arm not in ("raw", "random"):
                row[f"minus {other}"] = paired(scores, {seed: r["score"] for seed, r in cells[name, other].items()})
        rows.append(row)
    return rows


def text(rows: Sequence[Result]) -> str:
    lines = ["| series | arm | score | minus random | minus none | SIM minus without | rank |", "|" + "---|" * 7]
    for row in rows:
        level, spread = row["score"]
        cells = [f"{level:.2f}" if row["arm"] == "raw" else f"{level:.2f} ± {spread:.2f}"]
        for other in ("random", "none", row["arm"].removesuffix(" + SIM")):
            found = row.get(f"minus {other}") if other != row["arm"] else None
            cells.append(f"{found[0]:+.2f} ± {found[1]:.2f}" if found else "")
        lines.append(f"| {row['series']} | {row['arm']} | {' | '.join(cells)} | {row['rank']:.1f} |")
    return "\n".join(lines)


def recipe(options: argparse.Namespace, console: Console) -> None:
    found = digest(options.data)
    runs = [
        Run(name, arm, seed, found, steps=options.steps, batch=options.batch)
        for seed in range(options.seeds)
        for name in FILES
        for arm in ARMS
        if arm != "raw" or seed == 0
    ]
    results = arms.execute(runs, compute, load=folder_of, options=options, console=console, shown="score")
    rows = summarise(results)
    arms.report(options.out, results, rows, text(rows))


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("series_ssl", "VISReg and SMI on log-mel and telemetry", seeds=5)
    parser.set_defaults(data=REPO.parent / "shared/data")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=128)
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
