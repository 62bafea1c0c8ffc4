"""All seeds of a task, with SIM and without, each run stored when it is finished.

In `out`: task.json with every score; runs/KEY.json and runs/KEY.safetensors of each run, whose key is a digest of all
that it depends on, so that the same command goes on after an interruption and adds seeds.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from reglet.diagnostics.paired import paired
from reglet.engine.checkpoint import write
from reglet.engine.folder import write_json
from reglet.export import versions
from reglet.tasks.config import TaskConfig
from reglet.tasks.task import Task

Json = dict[str, Any]
REPORT = "task.json"
FREE = ("data", "out", "seeds", "paired", "sim")  # of a configuration: what one run does not depend on, or says itself


class Job(NamedTuple):
    seed: int
    sim: bool


def jobs(config: TaskConfig) -> list[Job]:
    """Both arms of a seed before the next seed."""
    arms = (False, True) if config.paired else (bool(config.sim),)
    return [Job(seed, sim) for seed in range(config.seeds) for sim in arms]


def run(
    name: str, task: Task[Any, Any], config: TaskConfig, *, done: Callable[[Job, Json], None] = lambda job, result: None
) -> Json:
    """Train what is not stored yet, and sum up.  Gives what task.json has."""
    data = task.load(config)
    print_of_data = fingerprint(config.data)
    folder = Path(config.out) / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[Job, Json] = {}
    for job in jobs(config):
        path = folder / f"{key(name, config, print_of_data, job)}.json"
        if not path.exists():
            outcome = task.train(config, data, seed=job.seed, sim=job.sim)
            about = {"task": name, "seed": job.seed, "blocks": list(outcome.blocks)}
            write(path.with_suffix(".safetensors"), outcome.network.state_dict(), about)
            write_json(path, {**about, "scores": outcome.scores})  # last: its presence says that all is there
        results[job] = json.loads(path.read_text())
        done(job, results[job])
    report = {
        "task": name,
        "config": asdict(config),
        "data": print_of_data,
        "versions": versions(),
        "blocks": next((r["blocks"] for job, r in results.items() if job.sim), []),
        "runs": [{"seed": job.seed, "sim": job.sim, "scores": r["scores"]} for job, r in results.items()],
        "scores": summary(results),
    }
    write_json(Path(config.out) / REPORT, report)
    return report


def summary(results: dict[Job, Json]) -> Json:
    """For each score its mean and spread without SIM and with it, and what SIM changed, where both were trained."""
    arms = {sim: [r["scores"] for job, r in results.items() if job.sim == sim] for sim in (False, True)}
    found: Json = {}
    for score in next(iter(results.values()))["scores"]:
        without, with_sim = ([float(scores[score]) for scores in arms[sim]] for sim in (False, True))
        found[score] = {"without": _spread(without), "with": _spread(with_sim)}
        if without and with_sim:
            found[score]["difference"] = _difference(without, with_sim)
    return found


def _difference(without: Sequence[float], with_sim: Sequence[float]) -> Json:
    """told: zero is outside of the interval.  Whether that is good depends on the score."""
    p = paired(without, with_sim)
    told = p.verdict != "cannot be told"
    return {"difference": p.difference, "low": p.low, "high": p.high, "seeds": p.seeds, "told": told}


def _spread(values: Sequence[float]) -> Json | None:
    if not values:
        return None
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": mean(values), "standard_error": error}


def key(name: str, config: TaskConfig, data: str, job: Job) -> str:
    """The name of a run's files."""
    about = {k: v for k, v in asdict(config).items() if k not in FREE}
    if job.sim:
        about["sim"] = config.sim
    else:
        del about["weight"], about["rho"]
    return hashlib.sha256(json.dumps([name, about, data, job.seed], sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(data: str) -> str:
    """Digest of a file, or of the names, sizes and times of the files in a folder."""
    if not data:
        return "built in"
    path, digest = Path(data), hashlib.sha256()
    if path.is_file():
        digest.update(path.read_bytes())
    for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else ():
        about = file.stat()
        digest.update(f"{file.relative_to(path)} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
