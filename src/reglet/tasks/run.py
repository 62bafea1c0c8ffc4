"""All seeds of a task, with rhoSIM and without, through the one loop and the one runner.

In `out`: config.json, which repeats the command; task.json with every score; runs/KEY.json with the scores of a run and
runs/KEY/ with its metrics, checkpoint and weights.  A key is a digest of all that a run depends on, so that the same
command goes on after an interruption, in the middle of a run too, and adds seeds.
"""

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from reglet.attach import matching
from reglet.engine.attachments import detach, with_attachments
from reglet.engine.build import with_sim
from reglet.engine.checkpoint import write
from reglet.engine.feed import Feed, Place
from reglet.engine.launch import launch, together
from reglet.engine.monitor import Untrained
from reglet.engine.run_folder import CONFIG, write_json
from reglet.engine.settings import FREE
from reglet.export import versions
from reglet.method import Batch, Method, innermost
from reglet.runs import Finished, Run, execute, interval, paired
from reglet.seeded import seeded
from reglet.tasks.config import TaskConfig
from reglet.tasks.task import AnyTask, RunsItself, Setup
from reglet.train import fit

Json = dict[str, Any]
C = TypeVar("C", bound=TaskConfig)
Scores = dict[str, float]
REPORT, NETWORK = "task.json", "network.safetensors"
WITHOUT, WITH = "without", "with"
NOT_A_RUNS_OWN = FREE | {"data", "seed", "seeds", "paired", "jobs", "init_from"}


class StoppedError(Exception):
    """A signal asked to stop; the checkpoint of the run under way is written."""


def run(name: str, task: AnyTask, config: TaskConfig) -> Json:
    """Train what is not stored yet, and sum up.  Gives what task.json has."""
    if isinstance(task, RunsItself):
        return task.run(config)
    fabric = launch(config)
    first = fabric.is_global_zero
    mark = fingerprint(config.data)
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    if first:
        write_json(out / CONFIG, describe(name, config, mark) | {"versions": versions()})
    with together(fabric):
        data = task.load(config)
    alone = len(runs(name, config, mark)) == 1
    finished = execute(
        runs(name, config, mark),
        partial(compute, task=task, config=config, shown=alone and first),
        load=(lambda: data) if config.jobs == 1 else partial(task.load, config),
        out=out / "runs",
        jobs=config.jobs,
        line=partial(in_words, main=task.main, arms=config.paired),
    )
    report = {
        "task": name,
        "config": config.flat(),
        "data": mark,
        "versions": versions(),
        "blocks": next((f.scores["blocks"] for f in finished if f.run.arm == WITH), []),
        "runs": [{"seed": f.run.seed, "sim": f.run.arm == WITH, "scores": f.scores["scores"]} for f in finished],
        "scores": summary(finished),
    }
    if first:
        write_json(out / REPORT, report)
    return report


def runs(name: str, config: TaskConfig, mark: str) -> list[Run]:
    """Both arms of a seed before the next seed."""
    return [
        Run(arm, seed, settings=depends_on(name, of_arm(config, arm), mark))
        for seed in range(config.seed, config.seed + config.seeds)
        for arm in arms(config)
    ]


def arms(config: TaskConfig) -> tuple[str, ...]:
    return (WITHOUT, WITH) if config.paired else (WITH,) if config.sim or config.attached() else (WITHOUT,)


def of_arm(config: C, arm: str) -> C:
    """The configuration of an arm: without rhoSIM and other attachments, none of their keys."""
    if arm == WITH:
        return config
    options = {key: value for key, value in config.options.items() if not key.startswith(("sim.", "attach."))}
    return replace(config, paired=False, options=options, sim="", sim_weight=TaskConfig.sim_weight)


def depends_on(name: str, config: TaskConfig, mark: str) -> Json:
    settings = {key: value for key, value in config.flat().items() if key not in NOT_A_RUNS_OWN}
    return {"task": name, **settings, "data": mark}


def compute(run: Run, data: Any, *, task: AnyTask, config: TaskConfig, shown: bool) -> Json:
    """One run: its scores, and where rhoSIM stood."""
    out = Path(config.out) / "runs" / run.key
    own = replace(of_arm(config, run.arm), seed=run.seed, out=str(out), resume=(out / CONFIG).exists())
    outcome = train_one(task, own, data, name=run.settings["task"], shown=shown)
    return {"scores": outcome.scores, "blocks": outcome.blocks}


class Outcome(NamedTuple):
    """blocks: what rhoSIM was attached to, if it was.  method: the task's own, without what was put beside it."""

    scores: Scores
    blocks: list[str]
    method: Method


def train_one(task: AnyTask, config: TaskConfig, data: Any, *, name: str, shown: bool = False) -> Outcome:
    """The network of one seed, trained by the loop into config.out."""
    fabric = launch(config)
    with seeded(config.seed):
        setup = task.setup(config, data)
    method, blocks = regularized(setup, config)
    if not setup.trains:
        model = Untrained(method, fabric.device)
        scores = {key: value for watch in setup.watch for key, value in watch.score(model).items()}
        return Outcome(scores, blocks, setup.method)
    about = describe(name, config, setup.feed.fingerprint)
    result = fit(method, setup.feed, config, watch=setup.watch, about=about, fabric=fabric, shown=shown)
    detach(method)
    if not result.finished:
        raise StoppedError(f"stopped after step {result.steps}; the same command goes on from there")
    scores = result.scores
    if fabric.is_global_zero:
        write(result.out / NETWORK, setup.method.state_dict(), {"task": name, "seed": config.seed, "scores": scores})
    return Outcome(scores, blocks, setup.method)


def regularized(setup: Setup, config: TaskConfig) -> tuple[Method, list[str]]:
    """The task's method, with rhoSIM and what else is attached to its blocks; and the blocks that rhoSIM is on."""
    method, blocks = setup.method, list[str]()
    if not config.sim and not config.attached():
        return method, blocks
    example = first_batch(setup.feed)
    if config.sim:
        names = config.blocks(setup.sim_blocks)
        if not names:
            raise ValueError(f"sim={config.sim}: this network suggests no blocks; name them, such as sim=stages.*")
        matching(innermost(method).get_submodule(setup.inside), names)  # an error that names blocks as the user does
        where = [f"{setup.inside}.{block}" for block in names]
        given = {"seed": config.seed, "channel_dim": setup.channel_dim}
        method = with_sim(config, method, where, example=example, **given)
        blocks = [block.removeprefix(f"{setup.inside}.") for block in method.blocks]
    method = with_attachments(config, method, example=example, inside=setup.inside, channel_dim=setup.channel_dim)
    return method, blocks


def first_batch(feed: Feed) -> Batch:
    """As one process sees it, on the host: the heads of rhoSIM are built from it."""
    feed.open(Place(), steps=0)
    with closing(feed):
        return feed(0)


def describe(name: str, config: TaskConfig, mark: str) -> Json:
    return {**config.flat(), "command": "train", "task": name, "fingerprint": mark}


def summary(finished: Sequence[Finished]) -> Json:
    """For each score its mean and spread without rhoSIM and with it, and what it changed, where both were trained."""
    arms = {arm: [f.scores["scores"] for f in finished if f.run.arm == arm] for arm in (WITHOUT, WITH)}
    found: Json = {}
    for score in finished[0].scores["scores"]:
        values = {arm: [float(scores[score]) for scores in rows] for arm, rows in arms.items()}
        found[score] = {arm: spread(some) if some else None for arm, some in values.items()}
        if all(values.values()):
            found[score]["difference"] = difference(values[WITHOUT], values[WITH])
    return found


def difference(without: Sequence[float], arm: Sequence[float]) -> Json:
    """What was changed, seed by seed.  Whether that is good depends on the score."""
    p = paired(without, arm)
    told = p.verdict != "cannot be told"
    return {"difference": p.difference, "low": p.low, "high": p.high, "seeds": p.seeds, "told": told}


def spread(values: Sequence[float]) -> Json:
    seen = interval(values)
    return {"mean": seen.mean, "standard_error": seen.error if seen.n > 1 else None}


def in_words(finished: Finished, *, main: str, arms: bool) -> str:
    blocks = finished.scores["blocks"]
    alone = "without" if arms else "trained"
    arm = f"rhoSIM on {len(blocks)} blocks" if blocks else "attached" if finished.run.arm == WITH else alone
    return f"seed {finished.run.seed}, {arm}: {main} {finished.scores['scores'][main]:.4f}"


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
