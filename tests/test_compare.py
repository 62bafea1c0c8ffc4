"""`reglet compare`: the same configuration twice cannot be told apart; a difference that is there is found."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from reglet import cost
from reglet.cli import main
from reglet.compare import score
from reglet.engine.build import build_parts
from reglet.engine.run_folder import read_run


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The class is the place of a bright square, which pooled random features hardly see and a trained net does."""
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 3
    images = rng.integers(0, 200, (240, 16, 16, 3), dtype=np.uint8)
    for image, y in zip(images, labels, strict=True):
        image[4:12, 4:12, y] //= 2
    path = tmp_path / "small.npz"
    np.savez(path, images=images, labels=labels, split=np.array(["train"] * 160 + ["test"] * 80))
    return path


def words(data: Path, out: Path, *more: str) -> list[str]:
    small = ["model=convnet", "epochs=1", "batch=80", "accelerator=cpu", "robust=false"]
    return ["compare", f"data={data}", *small, f"out={out}", *more]


def test_the_same_twice_cannot_be_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    ask = words(data, out, "seeds=4", "base=projector=16-8", "candidate=projector=16-8", "loss.slices=32")
    assert main(ask) == 0
    shown = capsys.readouterr().out
    assert "It cannot be told: both arms score the same on every seed" in shown
    assert max(map(len, shown.splitlines())) <= 120
    report = json.loads((out / "compare.json").read_text())
    for name, pair in report["scores"].items():
        assert pair["difference"] == pair["low"] == pair["high"] == 0
        assert pair["verdict"] == ("none" if name == "rank" else "cannot be told")
    assert report["ratio"]["parameters"] == report["ratio"]["flops"] == 1

    folder = out / "base" / "seed-0"
    parts = replace(build_parts(read_run(folder)[0]), test=None)
    assert score(folder, parts, robust=False).keys() == {"rank"}, "training images are no test"

    before = {path: path.stat().st_mtime_ns for path in out.rglob("encoder.safetensors")}
    assert len(before) == 8
    assert main([*ask[:-3], "base=projector=16-8", "candidate=projector=16-8", "loss.slices=32"]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before, "finished runs are kept"

    assert main([*ask[:-3], "base=projector=16-8", "candidate=projector=16-8", "loss.slices=16"]) == 2
    assert "loss.slices" in capsys.readouterr().err, "and not mistaken for runs of another configuration"


def test_labels_that_are_learned_beat_labels_that_are_not(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = words(data, tmp_path / "d", "command=train", "seeds=4", "base=lr=1e-9", "candidate=lr=1e-2", "warmup=0")
    ask[ask.index("epochs=1")] = "epochs=12"
    assert main(ask) == 0
    report = json.loads((tmp_path / "d" / "compare.json").read_text())
    assert report["main"] == "accuracy"
    assert report["scores"]["accuracy"]["verdict"] == "helps"
    assert report["sentence"].startswith("It helps: accuracy +")
    assert "on test images, over 4 seeds" in report["sentence"]
    assert [run["accuracy"] > 0.8 for run in report["runs"]["candidate"]] == [True] * 4


def test_robustness_and_a_run_as_an_arm(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ["pretrain", f"data={data}", "epochs=1", "batch=80", "projector=16-8", "accelerator=cpu", "loss.slices=32"]
    assert main([*first, f"out={tmp_path / 'a'}"]) == 0
    out = tmp_path / "e"
    arms = [f"base={tmp_path / 'a'}", f"candidate={tmp_path / 'a' / 'config.json'},loss.lam=0.5"]
    assert main(["compare", *arms, "seeds=1", f"out={out}"]) == 0
    report = json.loads((out / "compare.json").read_text())
    assert 0 <= report["scores"]["corrupted"]["base"] <= 1
    assert report["scores"]["linear"]["verdict"] == "cannot be told", "one seed tells nothing"
    assert report["candidate"]["loss.lam"] == 0.5


def test_without_labels_there_is_no_verdict(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However far the ranks are apart."""
    bare = tmp_path / "bare.npz"
    np.savez(bare, images=np.load(data)["images"])
    arms = ["base=lr=0,projector=16-8", "candidate=lr=0.05,projector=16-8", "seeds=4", "loss.slices=32"]
    assert main(words(bare, tmp_path / "f", *arms)) == 0
    report = json.loads((tmp_path / "f" / "compare.json").read_text())
    rank = report["scores"]["rank"]
    assert rank["low"] > 0 or rank["high"] < 0, "else the test shows nothing"
    assert rank["verdict"] == "none"
    assert report["main"] is None
    assert report["sentence"].startswith("No verdict: the data have no labels")
    assert "It h" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["base=lr=0.1"], "needs candidate="),
        (["base=epochs=3", "candidate=epochs=4"], "same data and budget"),
        (["base=lr=0.1", "candidate=lr=0.2", "seed=3"], "give seeds="),
        (["base=lr=0.1", "candidate=out=b"], "sets it"),
        (["base=lr=0.1", "candidate=ls=0.2"], "Did you mean"),
        (["base=nowhere/", "candidate=lr=0.2"], "nowhere"),
        (["base=lr=0.1", "candidate=lr=0.2", "seeds=0"], "at least 1"),
        (["base=lr=0.1", "candidate=lr=0.2", "seeds=many"], "seeds a number"),
    ],
)
def test_mistakes(more: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *more, f"out={tmp_path}"]) == 2
    assert says in capsys.readouterr().err


def test_slow_steps_are_timed_five_times(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"base": lambda: None, "candidate": lambda: None}
    assert [len(times) for times in cost._take_turns(steps, 12).values()] == [12, 12]
    monkeypatch.setattr(cost, "ENOUGH", 0.0)
    assert [len(times) for times in cost._take_turns(steps, 12).values()] == [5, 5]
