"""What a recipe is: data.  A paper, its printed figures, arms, a budget; and one function that computes one run.

`main` does the rest for all of them: it searches each arm's grid on validation with an equal number of trials, runs
arms x folds x seeds through `reglet.runs`, prints the table, and writes summary.json with a verdict for every claim.

    python -m recipes.NAME                          all of it; what is stored is not computed again
    python -m recipes.NAME seeds=2 steps=10         fewer seeds, other settings (key=value)
    python -m recipes.NAME commit=true              recipes/summaries/NAME.json too, from which the documents are made,
                                                    and recipes/runs/NAME.jsonl, from which another machine goes on
    python -m recipes.NAME compute=false            of what is finished so far
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any, Generic, Literal, TypeVar

from recipes.dose import TIMES
from recipes.health import RATE, above, inside, settled, twice
from reglet import keep_freed_memory
from reglet.runs import (
    Claim,
    ClaimVerdict,
    Dose,
    Finished,
    Gate,
    Line,
    Run,
    Score,
    by_seed,
    compare,
    execute,
    markdown,
    restore,
    stored,
    summarise,
    table,
    write_ledger,
    write_summary,
)
from reglet.runs.verdict import SEEDS, in_words
from reglet.tasks.config import TaskConfig
from reglet.tasks.run import train_one
from reglet.tasks.task import AnyTask

REPO = Path(__file__).resolve().parents[1]
DATA = REPO.parent / "shared/data"
SUMMARIES, LEDGERS = REPO / "recipes/summaries", REPO / "recipes/runs"
TRIAL_SEED = 100
Settings = Mapping[str, Any]
Scores = dict[str, Any]
D = TypeVar("D")


@dataclass(frozen=True)
class Printed:
    """A claim of the paper, and which difference of ours answers it.  See `reglet.runs.Claim`."""

    claim: str
    where: str
    arm: str
    versus: str
    effect: float | None = None
    margin: float | None = None
    sign: Literal[1, -1] = 1
    measure: str = ""  # the recipe's first
    folds: tuple[str, ...] | None = None  # all
    paper: str = ""  # the recipe's
    gated: bool = True  # False where the health of the network does not matter to it


@dataclass(frozen=True)
class Recipe(Generic[D]):
    """arms: what differs from `settings`, arm by arm.  Runs of one seed and fold are paired.

    data: a file, or a folder with `files`; None where the data come with a package.
    base: the arm that the others are compared with, or one for each.
    grid: what is tried for each arm, on `trial_folds` with the settings `trial`; the largest `chosen_by` wins.
    choice_of: arm -> the arm whose choice it takes.
    once: arms without randomness, which have one seed.
    fewer: arms, or folds, that have no more seeds than this, where others need more.
    side: how many seeds one run trains side by side (`recipes.many`); its scores are then lists, of a seed each.
    baseline: the arm whose health (`recipes.health`) stands for every claim's; otherwise what the claim compares with.
    reference: the arm of the simplest alternative, such as raw pixels, which the baseline must be above.
    frozen: the arm of a linear probe of pretrained weights, which it must be above as well.
    length: the setting that is doubled to see whether the baseline has settled; "" where nothing is trained.
    gates: of the recipe's own, of the finished runs of a claim's folds.
    prepare: data, out, settings -> the path that `load` takes, for what is computed once, before all runs.
    after: what else is made of the results, and of that path.
    share: of the paper's budget, in `of`.
    """

    name: str
    paper: str
    compute: Callable[[Run, D], Scores]
    load: Callable[[Path], D]
    arms: Mapping[str, Settings]
    measures: Sequence[str]
    settings: Settings = field(default_factory=dict)
    folds: Sequence[str] = ("",)
    seeds: int = 5
    data: Path | None = None
    files: Sequence[str] = ()
    base: str | Mapping[str, str] = ""
    grid: Mapping[str, Sequence[Settings]] = field(default_factory=dict)
    trial: Settings = field(default_factory=dict)
    trial_folds: Sequence[str] | None = None
    chosen_by: str = "validation"
    choice_of: Mapping[str, str] = field(default_factory=dict)
    once: Sequence[str] = ()
    fewer: Mapping[str, int] = field(default_factory=dict)
    side: int = 1
    printed: Sequence[Printed] = ()
    gates: Callable[[Sequence[Finished]], Sequence[Gate]] = lambda results: ()
    prepare: Callable[[Path, Path, Settings], Path] = lambda data, out, settings: data
    after: Callable[[Sequence[Finished], Path], None] = lambda results, data: None
    baseline: str = ""
    reference: str = ""
    frozen: str = ""
    length: str = "steps"
    share: float | None = None
    of: str = "images seen"

    def __post_init__(self) -> None:
        if len({len(tries) for tries in self.grid.values()}) > 1:
            raise ValueError(f"{self.name}: every arm has as many trials, got {[*map(len, self.grid.values())]}")
        if self.seeds < SEEDS:
            raise ValueError(f"{self.name}: a verdict rests on {SEEDS} seeds at least, got {self.seeds}")

    @property
    def longer(self) -> dict[str, str]:
        """Arms that are trained for twice as long, and of what."""
        bases = [self.baseline or p.versus for p in self.printed if p.gated and self.length]
        return {twice(arm): arm for arm in dict.fromkeys(bases)}


@dataclass(frozen=True)
class Options:
    """What the command line may change.  settings: those of the recipe, by name."""

    out: Path
    data: Path
    seeds: int
    jobs: int | Literal["auto"] = "auto"
    commit: bool = False
    compute: bool = True
    settings: Settings = field(default_factory=dict)


def options(recipe: Recipe[Any], words: Sequence[str]) -> Options:
    given = {key: value for key, _, value in (word.partition("=") for word in words)}
    known = {"out", "data", "seeds", "jobs", "commit", "compute", *recipe.settings}
    if unknown := sorted(given.keys() - known):
        raise SystemExit(f"recipes.{recipe.name} knows key=value for {', '.join(sorted(known))}; got {unknown[0]!r}")
    try:
        return Options(
            out=Path(given.get("out", REPO / "runs/recipes" / recipe.name)),
            data=Path(given.get("data", recipe.data or ".")),
            seeds=int(given.get("seeds", recipe.seeds)),
            jobs="auto" if given.get("jobs", "auto") == "auto" else int(given["jobs"]),
            commit=typed(False, given.get("commit", "false")),
            compute=typed(True, given.get("compute", "true")),
            settings={k: typed(recipe.settings[k], v) for k, v in given.items() if k in recipe.settings},
        )
    except (ValueError, KeyError) as error:
        raise SystemExit(f"recipes.{recipe.name}: {error}") from error


def typed(default: Any, word: str) -> Any:
    """The word as a value of the default's type."""
    if isinstance(default, bool):
        return {"true": True, "false": False}[word]
    return type(default)(word)


def main(recipe: Recipe[Any], words: Sequence[str] | None = None) -> int:
    asked = options(recipe, sys.argv[1:] if words is None else words)
    if words is None:  # a process of its own
        keep_freed_memory()
    try:
        run(recipe, asked)
    except KeyboardInterrupt:
        print("stopped. What was finished is stored; the same command goes on from there", file=sys.stderr)
        return 130
    return 0


def run(recipe: Recipe[Any], asked: Options) -> Scores:
    """Train what is missing, print the table, and give the summary that was written."""
    settings = {**recipe.settings, **asked.settings, "data": digest(recipe, asked.data)}
    ready = recipe.prepare(asked.data, asked.out, settings) if asked.compute else asked.data
    ledger = LEDGERS / f"{recipe.name}.jsonl"

    def work(runs: Sequence[Run]) -> list[Finished]:
        restore(ledger, runs, asked.out)
        if not asked.compute:
            return [found for run in runs if (found := stored(run, asked.out)) is not None]
        shown = partial(execute, load=partial(recipe.load, ready), out=asked.out, jobs=asked.jobs)
        return shown(runs, computing(recipe), about={"commit": current_commit()})

    trials = work(plan_trials(recipe, settings))
    best = chosen(recipe, trials)
    finished = work(plan(recipe, settings, best, seeds=asked.seeds))
    results = apart(finished, recipe.side)
    lines = claims(recipe, results)
    print(markdown(table(results, recipe.measures, base=recipe.base)))
    for fold in recipe.folds if len(recipe.folds) > 1 else ():
        print(f"\n{fold}\n\n{markdown(table(results, recipe.measures, base=recipe.base, folds=[fold]))}")
    for name, taken in best.items():
        print(f"{name}: {', '.join(f'{k} {v}' for k, v in taken.items())}")
    changed = {**({"seeds": asked.seeds} if asked.seeds != recipe.seeds else {}), **asked.settings}
    facts = {
        "command": f"python -m recipes.{recipe.name}" + "".join(f" {k}={v}" for k, v in changed.items()),
        "commit": ", ".join(sorted({r.about["commit"] for r in (*trials, *results)})),
        "date": max(r.about["date"] for r in results),
        "minutes": round(sum(r.about["cpu_seconds"] for r in (*trials, *results)) / 60, 1),
    }
    summary = summarise(recipe.name, lines, **facts, share=recipe.share, of=recipe.of)
    show(summary, lines)
    write_summary(asked.out / "summary.json", summary)
    if asked.compute:
        recipe.after(results, ready)
    if asked.commit:
        write_summary(SUMMARIES / f"{recipe.name}.json", summary)
        write_ledger(ledger, [*trials, *finished])
    return summary


def computing(recipe: Recipe[D]) -> Callable[[Run, D], Scores]:
    """What worker processes call.  To the recipe's own function an arm that is trained for longer is the arm itself."""
    return partial(_compute, recipe.compute, recipe.longer)


def _compute(own: Callable[[Run, D], Scores], longer: Mapping[str, str], run: Run, data: D) -> Scores:
    return own(replace(run, arm=longer.get(run.arm, run.arm)), data)


def show(summary: Scores, lines: Sequence[Line]) -> None:
    """Every gate, and every verdict."""
    gates = dict.fromkeys(gate for line in lines for gate in line.evidence.gates)
    for gate in gates:
        print(f"gate {gate.name}: {gate.value:.4g}, {gate.rule} {gate.threshold:.4g}: {'yes' if gate.passed else 'NO'}")
    for line, claim in zip(lines, summary["claims"], strict=True):
        verdict = ClaimVerdict(claim["verdict"], claim["why"], claim["seeds_needed"])
        dose = "" if line.dose is None else f", share of the gradient {', '.join(f'{x:.3f}' for x in line.dose.share)}"
        print(f"{line.claim}: {_ours(line)}{dose}: {in_words(verdict)}")


def plan(recipe: Recipe[Any], settings: Settings, best: Mapping[str, Settings], *, seeds: int) -> list[Run]:
    """Seed by seed, so that whatever is finished is paired.  Seed 0, on which sizes were settled, is not among them."""
    made = {arm: {**settings, **changes, **best.get(arm, {})} for arm, changes in recipe.arms.items()}
    longer = {name: {**made[arm], recipe.length: 2 * made[arm][recipe.length]} for name, arm in recipe.longer.items()}
    limits = {**recipe.fewer, **dict.fromkeys(recipe.once, 1), **dict.fromkeys(longer, SEEDS)}
    return [
        Run(arm, 1 + first // recipe.side, fold, own)
        for first in range(0, seeds, recipe.side)
        for fold in recipe.folds
        for arm, own in (made | longer).items()
        if first < min(limits.get(arm, seeds), limits.get(fold, seeds))
    ]


def seeds_of(run: Run, side: int) -> list[int]:
    """The seeds that one run trains side by side."""
    return [side * (run.seed - 1) + i for i in range(1, 1 + side)]


def apart(results: Sequence[Finished], side: int) -> list[Finished]:
    """A result for every seed.  A run that gave no lists, because it has no randomness, stays one."""
    if side == 1:
        return list(results)
    found = []
    for r in results:
        lists = any(isinstance(value, list) for value in r.scores.values())
        for i, seed in enumerate(seeds_of(r.run, side) if lists else seeds_of(r.run, side)[:1]):
            scores = {key: value[i] if isinstance(value, list) else value for key, value in r.scores.items()}
            about = {**r.about, "cpu_seconds": r.about["cpu_seconds"] / (side if lists else 1)}
            found.append(Finished(replace(r.run, seed=seed), scores, about))
    return found


def plan_trials(recipe: Recipe[Any], settings: Settings) -> list[Run]:
    return [
        Run(arm, TRIAL_SEED, fold, {**settings, **recipe.arms[arm], **recipe.trial, **tried, "trial": True})
        for arm, tries in recipe.grid.items()
        for tried in tries
        for fold in recipe.trial_folds or recipe.folds
    ]


def chosen(recipe: Recipe[Any], trials: Sequence[Finished]) -> dict[str, Settings]:
    """For each arm what scored best, over the folds of its trials."""
    best = {}
    for arm, tries in recipe.grid.items():
        mine = [t for t in trials if t.run.arm == arm]

        def score(tried: Settings, mine: Sequence[Finished] = mine) -> float:
            same = [t for t in mine if all(t.run.settings[k] == v for k, v in tried.items())]
            return mean(float(t.scores[recipe.chosen_by]) for t in same)

        best[arm] = max(tries, key=score)
    return best | {arm: best[other] for arm, other in recipe.choice_of.items()}


def claims(recipe: Recipe[Any], results: Sequence[Finished]) -> list[Line]:
    """Of those claims that two seeds at least can say something about."""
    lines = []
    for p in recipe.printed:
        mine = [r for r in results if p.folds is None or r.run.fold in p.folds]
        measure = p.measure or recipe.measures[0]
        seeds = [by_seed(results, arm, measure, folds=p.folds).keys() for arm in (p.arm, p.versus)]
        if len(seeds[0] & seeds[1]) < 2:
            print(f"{p.claim}: not run")
            continue
        healthy = gates(recipe, p, mine, measure) if p.gated else ()
        ours = compare(results, p.arm, p.versus, measure, folds=p.folds)
        base = mean(by_seed(results, p.versus, measure, folds=p.folds).values())
        alternative = by_seed(results, recipe.reference, measure, folds=p.folds) if recipe.reference else {}
        reference = Score(recipe.reference, mean(alternative.values())) if alternative else None
        evidence = Claim(ours, p.effect, p.margin, p.sign, healthy)
        facts = p.claim, p.paper or recipe.paper, p.where, measure, evidence, Score(p.versus, base), reference
        spent, each = cost(mine, p.arm, p.versus), minutes(mine, p.arm, p.versus)
        lines.append(Line(*facts, dose=dose(mine, p.arm), cost=spent, minutes=each))
    return lines


def gates(recipe: Recipe[Any], p: Printed, results: Sequence[Finished], measure: str) -> tuple[Gate, ...]:
    """The health of a claim, on the runs of its folds; by the first measure where alternatives lack its own."""
    base, others = recipe.baseline or p.versus, [other for other in (recipe.reference, recipe.frozen) if other]
    if not all(by_seed(results, other, measure) for other in others):
        measure = recipe.measures[0]
    found = [above(results, base, other, measure) for other in others]
    if recipe.length:
        found.append(settled(results, base, measure))
    searched = {recipe.choice_of.get(arm, arm) for arm in (p.arm, p.versus)}
    grid = {arm: tries for arm, tries in recipe.grid.items() if arm in searched and RATE in tries[0]}
    return (*found, *([inside(results, grid)] if grid else ()), *recipe.gates(results))


def cost(results: Sequence[Finished], arm: str, versus: str) -> float:
    """CPU time of an arm over another's: the median over paired runs, some of which other work has disturbed."""
    seconds = {(r.run.arm, r.run.seed, r.run.fold): float(r.about["cpu_seconds"]) for r in results}
    pairs = [(value, seconds.get((versus, seed, fold))) for (a, seed, fold), value in seconds.items() if a == arm]
    return round(median(mine / other for mine, other in pairs if other), 3)


def minutes(results: Sequence[Finished], *arms: str) -> float:
    """CPU minutes that one more seed of these arms costs, over all folds."""
    spent = [(r.run.seed, float(r.about["cpu_seconds"])) for r in results if r.run.arm in arms]
    return round(sum(seconds for _, seconds in spent) / len({seed for seed, _ in spent}) / 60, 2)


def dose(results: Sequence[Finished], arm: str) -> Dose | None:
    """Of an arm whose runs say it (`recipes.dose`), the mean over runs."""
    times = [
        [float(r.scores[f"{what} {time}"]) for r in results if r.run.arm == arm and f"{what} {time}" in r.scores]
        for what in ("share", "penalty")
        for time in TIMES
    ]
    if not all(times):
        return None
    means = [mean(values) for values in times]
    return Dose(means[: len(TIMES)], means[len(TIMES) :])


def _ours(line: Line) -> str:
    d, e = line.evidence.ours, line.evidence
    said = f"{e.printed:+.2f}" if e.printed is not None else f"level to {e.margin:g}" if e.margin else "no figure"
    return f"{d.mean:+.2f} ({d.low:+.2f} to {d.high:+.2f}) over {d.n} seeds, printed {said}"


def train_task(name: str, task: AnyTask, config: TaskConfig, data: Any, *, seed: int) -> Scores:
    """The scores of one run of a task in per cent, with nothing shown and nothing left on disk."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"accelerator": "cpu", "save_every": 10**9, "log_every": 10**9}
        own = replace(config, seed=seed, out=f"{folder}/run", **quiet)  # type: ignore[arg-type]
        return {score: 100 * value for score, value in train_one(task, own, data, name=name).scores.items()}


def as_the_authors(sim: str) -> Settings:
    """Options of a task for SIM with its authors' heads, which are narrower than ours; none where there is no SIM."""
    return {"sim.dim": "sqrt"} if sim else {}


def itself(path: Path) -> Path:
    """`load` of recipes that read their files as they go."""
    return path


def digest(recipe: Recipe[Any], data: Path) -> str:
    """Of the files that the runs depend on."""
    if recipe.data is None:
        return "with a package"
    paths = [data / name for name in recipe.files] or [data]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise SystemExit(f"no {' and '.join(missing)} at {data}: give data= the {'folder' if recipe.files else 'file'}")
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def current_commit() -> str:
    """With a + where code was changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=REPO, capture_output=True, text=True, check=False).stdout.strip()

    changed = "+" if git("status", "--porcelain", "--", "src", "recipes") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed
