"""The frame of all recipes, on one that computes nothing; and what every recipe has to be."""

import importlib
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recipes.health import inside, settled, twice
from recipes.recipe import Printed, Recipe, current_commit, digest, main, plan

from recipes import recipe as frame
from reglet.runs import Finished, Run, read_summary

RECIPES = [
    path.stem
    for path in sorted(Path(__file__).parents[2].glob("recipes/*.py"))
    if "RECIPE = " in path.read_text(encoding="utf-8")
]


OWN_GATES = (
    "few_shot_adapters",  # the means of the shots
    "photo_to_sketch",  # how much of the distance is bridged
    "costs",  # nothing is trained
    "smi_dynamics",  # both of these look at training as it goes: it need not have settled
    "visreg_correlation",
)


def load(path: Path) -> float:
    return float(path.read_text())


def compute(run: Run, offset: float) -> dict[str, float]:
    """Best at lr 0.2; the arm "more" is 2 above the others; seeds and folds have a noise of their own.

    A share of the gradient that falls from 0.5 to 0.1, for the arm "more" alone.
    """
    noise = np.random.default_rng([run.seed, len(run.fold), len(run.arm)]).normal(scale=0.05)
    score = offset + 10 * run.seed + len(run.fold) - abs(run.settings["lr"] - 0.2) + (2 if run.arm == "more" else 0)
    dose = {"share start": 0.5, "share middle": 0.3, "share end": 0.1}
    dose |= {"penalty start": 2.0, "penalty middle": 1.0, "penalty end": 0.5}
    return {"score": float(score + noise), "validation": float(score)} | (dose if run.arm == "more" else {})


RECIPE = Recipe(
    name="nothing",
    paper="none",
    compute=compute,
    load=load,
    data=Path("nowhere"),
    settings={"lr": 0.1, "steps": 3, "plain": True},
    arms={"base": {}, "more": {}, "again": {"steps": 6}, "nothing": {"lr": 50.0}},
    folds=("a", "bb"),
    base="base",
    measures=("score",),
    grid={arm: [{"lr": lr} for lr in (0.1, 0.2, 0.3)] for arm in ("base", "more")},
    choice_of={"again": "base"},
    once=("nothing",),
    printed=(
        Printed("more is more", "table 1", "more", "base", 2.0),
        Printed("more is much more", "table 1", "more", "base", 4.0),
        Printed("again is level", "table 2", "again", "base", margin=1.0),
        Printed("more is less on one fold", "table 3", "more", "base", -2.0, folds=("a",)),
    ),
    reference="nothing",
    share=0.01,
)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "data").write_text("1000")
    return [f"data={tmp_path / 'data'}", f"out={tmp_path / 'out'}", "jobs=1"]


def test_from_trials_to_verdicts(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RECIPE, words) == 0
    printed = capsys.readouterr().out
    summary = read_summary(tmp_path / "out/summary.json")
    assert [c["verdict"] for c in summary["claims"]] == ["holds", "smaller", "holds", "excluded"]
    assert summary["claims"][0]["ours"]["n"] == 5
    assert summary["claims"][0]["reference"]["name"] == "nothing"
    assert summary["budget"] == {"share": 0.01, "of": "images seen"}
    assert summary["commit"] == current_commit()
    assert "more is more: +" in printed
    gates = {gate["name"] for gate in summary["claims"][0]["gates"]}
    assert gates == {"base above nothing", "twice the steps move base by", "choices of lr on the edge of the grid"}
    assert all(f"gate {name}" in printed for name in gates)
    assert summary["claims"][0]["dose"] == {"share": [0.5, 0.3, 0.1], "penalty": [2.0, 1.0, 0.5]}
    assert summary["claims"][2]["dose"] is None
    stored = [
        json.loads(path.read_text())["run"] for path in (tmp_path / "out").glob("*.json") if path.stem != "summary"
    ]
    finals = [run for run in stored if "trial" not in run["settings"]]
    assert {run["settings"]["lr"] for run in finals if run["arm"] != "nothing"} == {0.2}, (
        "each has the choice of trials"
    )
    assert len(stored) - len(finals) == 2 * 3 * 2
    assert len(finals) == 2 * (4 * 5 + 1), "base, more, again and base for twice as long; nothing has one seed"
    assert {run["settings"]["steps"] for run in finals if run["arm"] == twice("base")} == {6}
    assert {run["seed"] for run in finals} == {1, 2, 3, 4, 5}, "sizes were settled on seed 0"


def test_a_gate_that_fails_stops_every_verdict(words: list[str], tmp_path: Path) -> None:
    edge = replace(RECIPE, grid={arm: [{"lr": lr} for lr in (0.2, 0.3)] for arm in ("base", "more")})
    assert main(edge, words) == 0
    claims = read_summary(tmp_path / "out/summary.json")["claims"]
    assert {c["verdict"] for c in claims} == {"cannot show"}
    assert claims[0]["why"] == "choices of lr on the edge of the grid (base, more): 2, not at most 0"


def test_settings_by_name(words: list[str], tmp_path: Path) -> None:
    assert main(RECIPE, [*words, "seeds=2", "steps=4", "plain=false"]) == 0
    assert "steps=4" in read_summary(tmp_path / "out/summary.json")["command"]
    for wrong, says in (("step=4", "'step'"), ("seeds=many", "many"), ("steps=a", "'a'"), ("plain=maybe", "maybe")):
        with pytest.raises(SystemExit, match=says):
            main(RECIPE, [*words, wrong])


def test_how_far_twice_the_steps_move_a_baseline() -> None:
    once = [Finished(Run("base", seed), {"y": 50.0 + seed}, {}) for seed in (1, 2, 3)]
    longer = [Finished(Run(twice("base"), seed), {"y": 51.5 + seed}, {}) for seed in (1, 2)]
    gate = settled([*once, *longer], "base", "y")
    assert (gate.value, gate.passed) == (1.5, False), "over the seeds that have both"
    assert not settled(once, "base", "y").passed, "what was not tried is not known to be settled"
    assert settled([*once, *(replace(r, scores={"y": r.scores["y"] - 1}) for r in longer)], "base", "y").passed


def test_a_rate_on_the_edge_is_named() -> None:
    results = [Finished(Run(arm, 1, settings={"lr": lr}), {}, {}) for arm, lr in (("a", 0.2), ("b", 0.3))]
    grid = {arm: [{"lr": lr} for lr in (0.1, 0.2, 0.3)] for arm in ("a", "b")}
    gate = inside(results, grid)
    assert (gate.name, gate.value, gate.passed) == ("choices of lr on the edge of the grid (b)", 1.0, False)
    assert inside(results[:1], {"a": grid["a"]}).passed


def test_arms_and_folds_may_have_fewer_seeds_than_others() -> None:
    runs = plan(replace(RECIPE, fewer={"more": 5, "bb": 6}), RECIPE.settings, {}, seeds=8)
    seeds = {(r.arm, r.fold): r.seed for r in runs}  # the last of each
    assert {key: seeds[key] for key in seeds if "twice" not in key[0]} == {
        ("base", "a"): 8,
        ("base", "bb"): 6,
        ("more", "a"): 5,
        ("more", "bb"): 5,
        ("again", "a"): 8,
        ("again", "bb"): 6,
        ("nothing", "a"): 1,
        ("nothing", "bb"): 1,
    }
    assert {seeds[key] for key in seeds if "twice" in key[0]} == {5}


def test_unequal_searches_and_few_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"every arm has as many trials, got \[3, 1\]"):
        replace(RECIPE, grid={**RECIPE.grid, "more": [{"lr": 0.2}]})
    with pytest.raises(ValueError, match="rests on 5 seeds at least, got 3"):
        replace(RECIPE, seeds=3)


def test_another_machine_goes_on_from_the_committed_runs(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the ledger is not computed again; what is half done has a summary, too."""
    monkeypatch.setattr(frame, "LEDGERS", tmp_path / "runs")
    monkeypatch.setattr(frame, "SUMMARIES", tmp_path / "summaries")
    (tmp_path / "summaries").mkdir()
    assert main(RECIPE, [*words, "commit=true"]) == 0
    elsewhere = [words[0], f"out={tmp_path / 'elsewhere'}", "jobs=1"]
    assert main(replace(RECIPE, compute=refuse), [*elsewhere, "compute=false"]) == 0
    before, after = (read_summary(tmp_path / place / "summary.json") for place in ("out", "elsewhere"))
    assert [c["verdict"] for c in after["claims"]] == [c["verdict"] for c in before["claims"]]
    assert after["claims"][0]["ours"]["mean"] == pytest.approx(before["claims"][0]["ours"]["mean"], abs=1e-2)
    assert main(replace(RECIPE, compute=refuse), elsewhere) == 0, "nothing is left to compute"
    with pytest.raises(ZeroDivisionError):
        main(replace(RECIPE, compute=refuse), [*elsewhere, "steps=4"])


def test_what_is_half_done_has_the_claims_that_were_run(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = {arm: RECIPE.arms[arm] for arm in ("base", "more", "nothing")}
    printed = [p for p in RECIPE.printed if p.arm in half]
    assert main(replace(RECIPE, arms=half, choice_of={}, printed=printed), words) == 0
    assert main(RECIPE, [*words, "compute=false"]) == 0
    assert "again is level: not run" in capsys.readouterr().out
    assert len(read_summary(tmp_path / "out/summary.json")["claims"]) == 3


def refuse(run: Run, offset: float) -> dict[str, float]:
    raise ZeroDivisionError(run.name)


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no there.npz at .*: give data= the file"):
        digest(RECIPE, tmp_path / "there.npz")
    with pytest.raises(SystemExit, match=r"no a.npz and b.npz at .*: give data= the folder"):
        digest(replace(RECIPE, files=("a.npz", "b.npz")), tmp_path)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole(name: str) -> None:
    """Runs differ, comparisons name arms that are there, and the searches are of one size."""
    recipe = importlib.import_module(f"recipes.{name}").RECIPE
    assert recipe.name == name
    assert pickle.loads(pickle.dumps(frame.computing(recipe))), "it is sent to other processes"
    runs = plan(recipe, recipe.settings, {}, seeds=2)
    assert len({run.key for run in runs}) == len(runs)
    versus = {recipe.base} if isinstance(recipe.base, str) else {*recipe.base, *recipe.base.values()}
    compared = {arm for p in recipe.printed for arm in (p.arm, p.versus)}
    assert versus - {""} | compared | {*recipe.once, *recipe.grid} <= set(recipe.arms)
    assert len({len(tries) for tries in recipe.grid.values()}) <= 1
    assert recipe.seeds >= 5
    assert all(p.effect or p.margin or p.sign for p in recipe.printed)
    assert all(set(p.folds or ()) <= set(recipe.folds) for p in recipe.printed)
    if any(p.gated for p in recipe.printed):
        assert recipe.reference or recipe.frozen or name in OWN_GATES, "there is no simplest alternative to be above"
        assert recipe.length or name in OWN_GATES, "nothing says whether the baseline has settled"
