"""Does it help?  Two configurations over the same seeds, data order and budget; differences with intervals, and costs.

Every seed trains both arms.  Randomness in a run depends only on its seed and step (see `reglet.train`).  So a pair
sees the same images in the same order and, if the arms share them, the same views and first weights.  Finished runs in
`out` are kept: an interrupted comparison continues, and more seeds can be added later.
"""

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reglet import progress
from reglet.cost import Cost, Ratio, compare_costs
from reglet.diagnostics.ranks import rankme
from reglet.diagnostics.robustness import robustness
from reglet.engine.budget import Budget, seconds_of, settle
from reglet.engine.build import Parts, build_parts
from reglet.engine.config import Config
from reglet.engine.launch import launch
from reglet.engine.run_folder import CONFIG, RunError, differences, read_config, write_json
from reglet.engine.settings import FREE
from reglet.evaluate.compute import Compute, compute
from reglet.evaluate.extract import CPU, extract
from reglet.export import ENCODER, load_encoder
from reglet.probes import knn_probe, knn_votes, linear_probe
from reglet.progress import duration
from reglet.runs import Finished, Paired, Run, execute, paired
from reglet.train import run

Json = dict[str, Any]
REPORT, BUDGET = "compare.json", "budget.json"
SECONDS = 60.0  # of a run on a CPU, where its length was left open
ROBUST_IMAGES, SEVERITIES = 500, (3,)
NAMES = {
    "accuracy": "accuracy",
    "linear": "linear probe",
    "knn": "kNN",
    "corrupted": "accuracy, corrupted",
    "rank": "RankMe",
}


@dataclass(frozen=True)
class Comparison:
    """scores: metric -> the paired comparison over seeds.

    main: the metric of the verdict in the sentence; None if there are no labels, and so no verdict.
    """

    scores: dict[str, Paired]
    costs: tuple[Cost, Cost]
    ratio: Ratio
    main: str | None
    sentence: str


def compare(
    base: Config,
    candidate: Config,
    out: Path,
    *,
    seeds: int = 5,
    robust: bool = True,
    jobs: int = 1,
) -> Comparison:
    """Train and score both arms on seeds 0, 1, ...; compare.json in `out` has every number.

    jobs: runs at a time, each in a process of one thread; 1: in this process.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    _require_same_budget(base, candidate)
    arms = {"base": base, "candidate": candidate}
    parts = {arm: build_parts(config) for arm, config in arms.items()}
    arms = settled(arms, parts, out, count=2 * seeds)
    base, candidate = arms.values()
    runs = [
        Run(arm, seed, settings=_depends_on(config, parts[arm].images.fingerprint, robust=robust))
        for seed in range(seeds)
        for arm, config in arms.items()
    ]
    results = execute(
        runs,
        partial(_run_and_score, arms=arms, out=out, robust=robust),
        load=(lambda: parts) if jobs == 1 else partial(_parts, arms),
        out=out / "runs",
        jobs=jobs,
        line=_in_words,
    )
    found = {arm: [r.scores for r in results if r.run.arm == arm] for arm in arms}
    pairs = {
        key: paired(*([s[key] for s in found[arm]] for arm in found), larger_is_better=None if key == "rank" else True)
        for key in found["base"][0]
    }
    a, b, ratio = compare_costs(base, candidate)
    main = next((key for key in ("accuracy", "linear") if key in pairs), None)
    said = no_verdict(pairs["rank"]) if main is None else sentence(pairs[main], NAMES[main])
    result = Comparison(pairs, (a, b), ratio, main, said)
    write_json(out / REPORT, {"base": base.flat(), "candidate": candidate.flat(), "runs": found, **asdict(result)})
    return result


def settled(arms: dict[str, Config], parts: dict[str, Parts], out: Path, *, count: int) -> dict[str, Config]:
    """Both arms with the same batch and epochs, if these were left open, and a line about their cost.

    The values are kept in `out`, so that an interrupted comparison continues with them.
    """
    kept = json.loads((out / BUDGET).read_text()) if (out / BUDGET).exists() else {}
    opened = {key for key in ("batch", "epochs") if not getattr(arms["base"], key)}
    given = {key: kept[key] for key in opened if key in kept}
    asked = {arm: replace(config, **given) for arm, config in arms.items()}
    found = {arm: settle(config, parts[arm], launch(config), seconds=SECONDS) for arm, config in asked.items()}
    same = {key: min(getattr(config, key) for config, _ in found.values()) for key in ("batch", "epochs")}
    arms = {arm: replace(config, **same) for arm, (config, _) in found.items()}
    if opened:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / BUDGET, same)
    _say(arms, parts, {arm: budget for arm, (_, budget) in found.items()}, count)
    return arms


def _say(arms: dict[str, Config], parts: dict[str, Parts], budgets: dict[str, Budget | None], count: int) -> None:
    config, images = arms["base"], parts["base"].images
    steps = config.steps or config.epochs * (len(images) // config.batch)
    seconds = [
        seconds_of(arms[arm], parts[arm], b, epochs=config.epochs, device=torch.device("cpu"))
        for arm, b in budgets.items()
        if b is not None
    ]
    long = f": about {duration(sum(seconds) * count / 2)} of training" if len(seconds) == 2 else ""
    progress.line(
        f"compare: {count} runs on {images.name}, {len(images):,} images, each of {steps:,} steps of {config.batch} "
        f"images{long}, and each is scored"
    )


def sentence(pair: Paired, name: str) -> str:
    """The verdict in words.  It names the score on test images that decides."""
    interval = f"{100 * pair.difference:+.2f} points ({100 * pair.low:+.2f} to {100 * pair.high:+.2f})"
    seen = f"{name} {interval} on test images, over {pair.seeds} seeds"
    if pair.verdict == "cannot be told":
        if pair.difference == 0 and pair.low == pair.high:
            return f"It cannot be told: both arms score the same on every seed ({seen})."
        if pair.seeds_needed is None or pair.seeds_needed <= pair.seeds:
            more = "a difference this small beside its spread would take more than 1,000 seeds"
            if pair.seeds_needed is not None:
                more = f"give a few more seeds than {pair.seeds}"
        else:
            more = f"about {pair.seeds_needed} seeds would tell a difference of this size"
        return f"It cannot be told at {pair.seeds} seeds: {seen}; {more}."
    return f"It {pair.verdict}: {seen}."


def no_verdict(rank: Paired) -> str:
    """The sentence without labels.  A collapsed encoder has a low rank, but so has one that knows its classes."""
    interval = f"{rank.difference:+.2f} ({rank.low:+.2f} to {rank.high:+.2f})"
    return (
        f"No verdict: the data have no labels to score the features by. RankMe differs by {interval} over {rank.seeds} "
        "seeds, and a higher rank alone is neither better nor worse."
    )


def _require_same_budget(base: Config, candidate: Config) -> None:
    """Data and length of training are the ground that both stand on."""
    fixed = ("command", "data", "epochs", "batch", "labels", "long_tail", "leave_out")
    if wrong := [key for key in fixed if getattr(base, key) != getattr(candidate, key)]:
        says = ", ".join(f"{key} {getattr(base, key)!r} and {getattr(candidate, key)!r}" for key in wrong)
        raise ValueError(f"both arms need the same data and budget, got {says}")


def _depends_on(config: Config, fingerprint: str, *, robust: bool) -> Json:
    own = {key: value for key, value in config.flat().items() if key not in FREE | {"seed"}}
    return {**own, "fingerprint": fingerprint, "robust": robust}


def _parts(arms: dict[str, Config]) -> dict[str, Parts]:
    """The data of each arm, in a worker."""
    return {arm: build_parts(config) for arm, config in arms.items()}


def _run_and_score(one: Run, parts: dict[str, Parts], *, arms: dict[str, Config], out: Path, robust: bool) -> Json:
    folder = out / one.arm / f"seed-{one.seed}"
    config = replace(arms[one.arm], seed=one.seed, out=str(folder))
    if not (folder / ENCODER).exists():
        result = run(replace(config, resume=(folder / CONFIG).exists()), shown=False)
        if not result.finished:
            raise RunError(f"stopped after step {result.steps} of {folder}; the same command goes on from there")
    else:
        _require_unchanged(folder, config)
    where = compute(accelerator=config.accelerator, precision=config.precision)
    return dict(score(folder, parts[one.arm], robust=robust, where=where))


def _in_words(finished: Finished) -> str:
    scores = ", ".join(f"{NAMES[key]} {value:.4g}" for key, value in finished.scores.items())
    return f"seed {finished.run.seed}, {finished.run.arm}: {scores}"


def _require_unchanged(out: Path, config: Config) -> None:
    stored = {key: value for key, value in read_config(out / CONFIG).items() if key in config.flat()}
    if changed := differences(stored, config.flat()):
        raise RunError(f"{out} has a finished run of another configuration: {'; '.join(changed)}. Give another out=")


@torch.no_grad()
def score(folder: Path, parts: Parts, *, robust: bool = True, where: Compute = CPU) -> dict[str, float]:
    """The scores of the encoder in `folder` on the data of `parts`: probes, also on corrupted images, and its rank."""
    encoder, preprocess, card = load_encoder(folder)
    test = parts.images if parts.test is None else parts.test
    x = extract(encoder, test, preprocess, compute=where)
    scores = {"rank": rankme(x)}
    if parts.images.labels is None or test.labels is None or parts.test is None:
        return scores
    known, y = extract(encoder, parts.images, preprocess, compute=where), parts.images.labels.to(where.place)
    y_test, net = test.labels.to(where.place), where.copies(encoder)[0]
    if "accuracy" in card["metrics"]:
        scores["accuracy"] = float(card["metrics"]["accuracy"])
    scores["linear"] = linear_probe(known, y, x, y_test).accuracy
    k = min(20, len(known))
    scores["knn"] = knn_probe(known, y, x, y_test, k=k)
    if robust:
        few = torch.arange(len(test))[:ROBUST_IMAGES]

        def predict(images: Tensor) -> Tensor:
            pixels = (images * 255).round().to(torch.uint8)
            with where.mixed():
                z = net(where.cast(preprocess(where.take(pixels)))).float()
            return knn_votes(known, y, z, k=k)

        seen = robustness(predict, where.take(test.batch(few)), y_test[few.to(where.place)], severities=SEVERITIES)
        scores["corrupted"] = seen.mean
    return {key: scores[key] for key in NAMES if key in scores}
