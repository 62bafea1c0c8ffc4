"""The best weights by a score, patience, and both under kill and resume."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.engine.test_resume import DyingError, Mortal, rows
from tests.engine.toy import Brighten, feed, images, toy
from torch import Tensor

from reglet.engine.best import BEST, Best, merit
from reglet.engine.checkpoint import read
from reglet.engine.monitor import LabelFree, Trained, Untrained
from reglet.engine.settings import Settings
from reglet.train import fit


class Told:
    """A score that is known beforehand, of every second step."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = values

    def due(self, done: int, *, steps: int, per_epoch: int) -> bool:
        self.at = done // 2 - 1
        return done % 2 == 0

    def score(self, model: Trained) -> dict[str, float]:
        return {"told": self.values[self.at]}


def settings(out: Path, **more: object) -> Settings:
    given = {"accelerator": "cpu", "steps": 12, "batch": 16, "keep_best": "told", "lr": 0.05, "warmup": 0.0}
    return Settings(out=str(out), **{**given, **more})  # type: ignore[arg-type]


def weights(path: Path) -> dict[str, Tensor]:
    return read(path)[0]


def test_the_best_is_kept_beside_the_last(tmp_path: Path) -> None:
    s = settings(tmp_path / "a", save_every=1)
    fit(toy(), feed(s), s, watch=[Told([1.0, 3.0, 2.0, 3.0, 0.0, 0.0])], shown=False)
    kept, about = read(tmp_path / "a" / BEST)
    assert about["step"] == 4
    short = settings(tmp_path / "b", steps=12, save_every=4)
    with pytest.raises(DyingError):
        fit(toy(), feed(short, policy=Mortal(4)), short, watch=[Told([1.0, 3.0])], shown=False)
    at_four = weights(tmp_path / "b" / "checkpoint.safetensors")
    assert all(torch.equal(value, at_four[key]) for key, value in kept.items())
    assert not any(key.startswith("optimizer.") for key in kept)


def test_patience_ends_a_run_and_says_that_it_is_finished(tmp_path: Path) -> None:
    s = settings(tmp_path / "a", patience=2)
    result = fit(toy(), feed(s), s, watch=[Told([1.0, 3.0, 2.0, 3.0, 9.0, 9.0])], shown=False)
    assert (result.steps, result.finished) == (8, True)
    assert read(tmp_path / "a" / "checkpoint.safetensors")[1]["step"] == 8
    again = fit(toy(), feed(s), replace(s, resume=True), watch=[Told([])], shown=False)
    assert (again.steps, again.finished) == (8, True)


@pytest.mark.parametrize("kill", [3, 5, 7])
def test_killed_and_resumed_decides_the_same(tmp_path: Path, kill: int) -> None:
    values = [1.0, 3.0, 2.0, 3.0, 2.5, 9.0]
    for out, deaths in (("a", []), ("b", [kill])):
        s = settings(tmp_path / out, patience=3, save_every=3)
        for death in deaths:
            with pytest.raises(DyingError):
                fit(toy(), feed(s, policy=Mortal(death)), s, watch=[Told(values)], shown=False)
        resume = replace(s, resume=bool(deaths))
        assert fit(toy(), feed(s), resume, watch=[Told(values)], shown=False).steps == 10
    for file in (BEST, "checkpoint.safetensors"):
        a, b = weights(tmp_path / "a" / file), weights(tmp_path / "b" / file)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert read(tmp_path / "a" / BEST)[1]["step"] == 4
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_a_score_that_nobody_watches_is_an_error(tmp_path: Path) -> None:
    s = settings(tmp_path / "a", steps=2)
    with pytest.raises(ValueError, match="keep_best=told: there was no score"):
        fit(toy(), feed(s), s, shown=False)
    with pytest.raises(ValueError, match="say which by keep_best="):
        Settings(patience=3)


def test_alpha_is_best_at_one() -> None:
    best = Best("alphareq")
    assert [best.see(value, i) for i, value in enumerate([2.0, 0.5, 1.4, 0.5])] == [True, True, True, False]
    assert merit("knn", 0.3) == 0.3


@pytest.mark.parametrize("name", ["rankme", "alphareq", "lidar"])
def test_scores_without_labels_are_the_same_each_time(name: str) -> None:
    model = Untrained(toy(), torch.device("cpu"))
    watch = LabelFree(name, images(), lambda x: x.float() / 255, policy=Brighten(), most=40)
    first, second = (watch.score(model)[name] for _ in range(2))
    assert first == second > 0
    assert len(watch.index) == 40
    with pytest.raises(ValueError, match="scores without labels are"):
        LabelFree("knn", images(), lambda x: x)
    with pytest.raises(ValueError, match="give a policy"):
        LabelFree("lidar", images(), lambda x: x)
