"""Each domain left out in turn, over seeds and learning rates; one of DomainBed's three rules chooses what is reported.

Gulrajani and Lopez-Paz, ICLR 2021, arXiv:2007.01434.  With paired=true every run has a twin without rhoSIM and other
attachments, for which the rule chooses by itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from reglet import progress
from reglet.data import Images
from reglet.engine.launch import launch, together
from reglet.engine.run_folder import CONFIG, write_json
from reglet.export import versions
from reglet.methods.domains import Choice, leave_one_domain_out, oracle, training_domain
from reglet.runs import Finished, Run, execute
from reglet.tasks.domains.config import DomainsConfig
from reglet.tasks.domains.task import CheckpointScores, DomainsTask, check, checkpoint_scores
from reglet.tasks.run import REPORT, WITH, WITHOUT, arms, depends_on, describe, difference, of_arm, spread, train_one

Json = dict[str, Any]
NAME = "domains"
Key = tuple[str, float, int]  # domains left out, learning rate, seed


def leave_each_out(config: DomainsConfig) -> Json:
    """The table: for every domain, tested and not trained on, the accuracy of what the rule chose, seed by seed."""
    fabric = launch(config)
    first = fabric.is_global_zero
    task, out = DomainsTask(), Path(config.out)
    with together(fabric):
        images = task.load(config)
    notes = check(images, selection=config.selection)
    out.mkdir(parents=True, exist_ok=True)
    if first:
        write_json(out / CONFIG, describe(NAME, config, images.fingerprint) | {"versions": versions()})
    todo = runs(config, images)
    if first:
        progress.line(plan(config, images, count=len(todo)))
    finished = execute(
        todo,
        partial(compute, config=config),
        load=(lambda: images) if config.jobs == 1 else partial(task.load, config),
        out=out / "runs",
        jobs=config.jobs,
        line=in_words,
    )
    tables = [table(config, images, [f for f in finished if arm_of(f.run) == arm]) for arm in arms(config)]
    if config.paired:
        _compare(*tables)
    report = {
        "task": NAME,
        "config": config.flat(),
        "data": {"name": images.name, "fingerprint": images.fingerprint, "images": len(images)},
        "notes": notes,
        **tables[-1],
    }
    if first:
        write_json(out / REPORT, report)
    return report


def plan(config: DomainsConfig, images: Images, *, count: int) -> str:
    """What will be trained, and how to train less."""
    left = len(domains_tested(config, images))
    size = f"{config.steps} steps of {config.per_domain} images of each training domain"
    why = f"{left} domain{'s' * (left > 1)} left out in turn, {config.seeds} seed{'s' * (config.seeds > 1)}"
    rates = f", {len(config.tried)} learning rates" if len(config.tried) > 1 else ""
    return f"domains: {count} runs on {images.name}, each of {size}: {why}{rates}; seeds=1 or leave_out=NAME: fewer"


def table(config: DomainsConfig, images: Images, finished: Sequence[Finished]) -> Json:
    """One row for each domain left out, and their average, of one arm."""
    curves = {key_of(f.run): checkpoint_scores(f.scores, checkpoints=config.checkpoints) for f in finished}
    tested, every = domains_tested(config, images), domains_of(images)
    seeds = list(range(config.seed, config.seed + config.seeds))
    rows = [_row(config, test, every, seeds, curves) for test in tested]
    average = [mean(row["accuracy"][i] for row in rows) for i in range(len(seeds))]
    return {"held_out": rows, "average": {"accuracy": average, **spread(average)}}


def _compare(without: Json, arm: Json) -> None:
    """Beside each row of `arm`: the same row without, and what was changed, seed by seed."""
    pairs = zip([*without["held_out"], without["average"]], [*arm["held_out"], arm["average"]], strict=True)
    for base, row in pairs:
        row["without"] = {key: value for key, value in base.items() if key != "domain"}
        row["difference"] = difference(base["accuracy"], row["accuracy"])


def domains_of(images: Images) -> list[str]:
    assert images.domain is not None
    return [(images.domains or [])[int(d)] for d in images.domain.unique()]


def domains_tested(config: DomainsConfig, images: Images) -> list[str]:
    return [config.leave_out] if config.leave_out else domains_of(images)


def runs(config: DomainsConfig, images: Images) -> list[Run]:
    """What has to be trained: for leave-one-domain-out validation also without every second domain."""
    every = domains_of(images)
    without = list(domains_tested(config, images))
    if config.selection == "leave_one_domain_out":
        without += [f"{d},{test}" for test in domains_tested(config, images) for d in every if d != test]
    own = {arm: depends_on(NAME, of_arm(config, arm), images.fingerprint) for arm in arms(config)}
    for settings in own.values():
        for free in ("selection", "rates", "leave_out"):
            del settings[free]
    return [
        Run(f"lr {lr:g}", seed, fold=left, settings={**settings, "lr": lr})
        for seed in range(config.seed, config.seed + config.seeds)
        for left in without
        for lr in config.tried
        for settings in own.values()
    ]


def arm_of(run: Run) -> str:
    """Both arms of a pair have the same name, so that a run is stored once, however it was asked for."""
    attached = run.settings["sim"] or any(key.startswith("attach.") for key in run.settings)
    return WITH if attached else WITHOUT


def key_of(run: Run) -> Key:
    return run.fold, run.settings["lr"], run.seed


def compute(run: Run, images: Images, *, config: DomainsConfig) -> Json:
    out = Path(config.out) / "runs" / run.key
    own = replace(
        of_arm(config, arm_of(run)),
        leave_out=run.fold,
        lr=run.settings["lr"],
        rates="",
        seed=run.seed,
        out=str(out),
        resume=(out / CONFIG).exists(),
    )
    return dict(train_one(DomainsTask(), own, images, name=NAME).scores)


def in_words(finished: Finished) -> str:
    last = max((key for key in finished.scores if key.startswith("test@")), key=lambda key: int(key[5:]))
    left, sim = finished.run.fold.replace(",", " and "), ", rhoSIM" if finished.run.settings["sim"] else ""
    return f"seed {finished.run.seed}, without {left}, {finished.run.arm}{sim}: test {finished.scores[last]:.4f}"


def choose(rule: str, curves: Sequence[CheckpointScores], held_out: Sequence[Sequence[CheckpointScores]]) -> Choice:
    """curves: a run per learning rate.  held_out: for each rate the runs that left out a second domain."""
    if rule == "oracle":
        return oracle(torch.tensor([c.oracle for c in curves], dtype=torch.float64))
    if rule == "training_domain":
        return training_domain(torch.tensor([c.validation for c in curves], dtype=torch.float64))
    scores = [[c.test for c in runs] for runs in held_out]
    return leave_one_domain_out(torch.tensor(scores, dtype=torch.float64).transpose(1, 2))


def _row(
    config: DomainsConfig, test: str, every: list[str], seeds: list[int], curves: dict[Key, CheckpointScores]
) -> Json:
    accuracy, chosen = [], []
    for seed in seeds:
        mine = [curves[test, lr, seed] for lr in config.tried]
        held: list[list[CheckpointScores]] = []
        if config.selection == "leave_one_domain_out":
            held = [[curves[f"{d},{test}", lr, seed] for d in every if d != test] for lr in config.tried]
        choice = choose(config.selection, mine, held)
        accuracy.append(mine[choice.trial].test[choice.checkpoint])
        chosen.append({"lr": config.tried[choice.trial], "checkpoint": choice.checkpoint + 1, "by": choice.score})
    return {"domain": test, "accuracy": accuracy, **spread(accuracy), "chosen": chosen}
