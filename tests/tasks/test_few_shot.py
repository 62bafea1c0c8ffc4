from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.tasks.trained import train

from reglet.tasks.few_shot import TASK
from reglet.tasks.few_shot.config import FewShotConfig
from reglet.tasks.few_shot.data import Features, draw, episode
from reglet.tasks.few_shot.task import orders

Arrays = dict[str, NDArray[np.generic]]


def blobs(*, n: int = 120, classes: int = 3, d: int = 8, noise: float = 0.3) -> Arrays:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, d))
    y = np.arange(n) % classes
    x, x_test = (centres[y] + noise * rng.normal(size=(n, d)) for _ in range(2))
    return {"train_features": x, "train_labels": y, "test_features": x_test, "test_labels": y}


def saved(path: Path, arrays: Arrays) -> str:
    np.savez(path / "x.npz", **arrays)
    return str(path / "x.npz")


@pytest.mark.parametrize("sim", [False, True])
def test_trained_keys_learn_classes_whose_means_say_nothing(tmp_path: Path, sim: bool) -> None:
    """Each class has two opposite modes, so its mean direction is noise; the cache alone can tell them apart."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    sign = np.where(np.arange(400) // 4 % 2, 1, -1)
    x = sign[:, None] * np.eye(4)[y] + 0.15 * rng.normal(size=(400, 4))
    parts = {"train_features": x[:200], "train_labels": y[:200], "test_features": x[200:], "test_labels": y[200:]}
    config = FewShotConfig(data=saved(tmp_path, parts), sim="auto", steps=80, lr=1e-2)
    data = TASK.load(config)
    free = train(TASK, FewShotConfig(model="tip-adapter"), data, seed=0, sim=False).scores
    outcome = train(TASK, config, data, seed=0, sim=sim)
    assert free["head_alone"] < free["accuracy"] < 0.7 < 0.95 < outcome.scores["accuracy"]
    assert outcome.blocks == (["cache"] if sim else [])


@pytest.mark.parametrize("sim", [False, True])
def test_meta_adapter_learns_to_believe_the_shots(tmp_path: Path, sim: bool) -> None:
    """The class features given point to other classes, and the gate must open for the shots to win."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 5
    x, x_test = (np.eye(8)[y] + 0.1 * rng.normal(size=(200, 8)) for _ in range(2))
    arrays = {"train_features": x, "train_labels": y, "test_features": x_test, "test_labels": y}
    arrays["class_features"] = np.roll(np.eye(8)[:5], 1, axis=0) + 0.35 * np.eye(8)[:5]
    data = TASK.load(FewShotConfig(data=saved(tmp_path, arrays)))

    def accuracy(steps: int, lr: float) -> float:
        config = FewShotConfig(model="meta-adapter", shots=8, sim="auto", steps=steps, lr=lr)
        return train(TASK, config, data, seed=0, sim=sim).scores["accuracy"]

    assert accuracy(1, 1e-9) < 0.5
    assert accuracy(150, 3e-2) > 0.9


@pytest.mark.parametrize("model", ["tip-adapter", "tip-adapter-f", "meta-adapter"])
def test_the_built_in_digits(model: str) -> None:
    config = FewShotConfig(model=model, shots=4, steps=20)
    assert train(TASK, config, TASK.load(config), seed=0, sim=False).scores["accuracy"] > 0.7


@pytest.mark.parametrize("model", ["tip-adapter-f", "meta-adapter"])
def test_a_pair_differs_by_sim_alone(model: str) -> None:
    """SIM of weight 0 changes no bit, SIM of some weight does."""
    data = TASK.load(FewShotConfig())

    def trained(weight: float, *, sim: bool) -> torch.Tensor:
        config = FewShotConfig(model=model, shots=4, steps=5, sim="auto", sim_weight=str(weight))
        return torch.cat([p.flatten() for p in train(TASK, config, data, seed=1, sim=sim).method.parameters()])

    without = trained(1.0, sim=False)
    assert torch.equal(trained(0.0, sim=True), without)
    assert not torch.equal(trained(1.0, sim=True), without)


def features(classes: int = 3, given: torch.Tensor | None = None) -> Features:
    x, y = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % classes
    return Features(x, y, x, y, given, classes)


def test_fewer_shots_are_the_first_of_more_and_of_their_class() -> None:
    data = features()
    many, few = draw(data, 8, seed=3), draw(data, 2, seed=3)
    assert torch.equal(many.x[:, :2], few.x)
    for c in range(3):
        own = {tuple(row) for row in data.train[data.train_labels == c].tolist()}
        drawn = {tuple(row) for row in many.x[c].tolist()}
        assert drawn <= own
        assert len(drawn) == 8


@pytest.mark.parametrize("shots", [2, 5, 16])
def test_what_an_episode_asks_about_is_not_in_its_support(shots: int) -> None:
    drawn = draw(features(), shots, seed=0)
    random = torch.Generator().manual_seed(0)
    for _ in range(3):
        support, x, y = episode(drawn, orders(torch.zeros(1).long(), random, shots=drawn).views[0][0])
        assert len(x) + support.x.shape[0] * support.x.shape[1] == 3 * shots
        for row, label in zip(x, y, strict=True):
            assert not bool((support.x == row).all(2).any())
            assert bool((drawn.x[label] == row).all(1).any())
        means = torch.nn.functional.normalize(torch.nn.functional.normalize(support.x, dim=2).sum(1), dim=1)
        torch.testing.assert_close(support.class_features, means)


def test_given_class_features_stay_in_an_episode_and_one_shot_supports_itself() -> None:
    given = torch.eye(3, 5)
    drawn = draw(features(given=given), 1, seed=0)
    support, x, _ = episode(drawn, orders(torch.zeros(1).long(), torch.Generator(), shots=drawn).views[0][0])
    assert torch.equal(support.class_features, given)
    assert torch.equal(support.x[:, 0], x)


def without(key: str) -> Arrays:
    return {name: value for name, value in blobs().items() if name != key}


def test_tip_adapter_is_trained_on_the_views_of_its_shots(tmp_path: Path) -> None:
    """Views of another class: the keys are the shots still, and what is learned is wrong."""
    arrays = blobs()
    moved = np.roll(arrays["train_features"], 1, axis=0)  # the next class in turn
    config = FewShotConfig(shots=8, steps=60, lr=1e-2, scale=1e-3)

    def accuracy(**more: NDArray[np.generic]) -> float:
        data = TASK.load(replace(config, data=saved(tmp_path, arrays | more)))
        return train(TASK, config, data, seed=0, sim=False).scores["accuracy"]

    assert accuracy(train_views=moved[:, None]) < 0.7 < 0.9 < accuracy()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (without("test_labels"), "lacks test_labels"),
        (blobs() | {"test_features": np.zeros((120, 9))}, r"must agree in d, got \(120, 8\) and \(120, 9\)"),
        (blobs() | {"class_features": np.zeros((2, 8))}, r"class_features of 3 classes are \(3, 8\).*\(2, 8\)"),
        (blobs() | {"class_features": np.zeros((3, 7))}, r"got \(3, 7\)"),
        (blobs() | {"train_views": np.zeros((120, 2, 7))}, r"\(n, views, d\).*\(120, 8\), got \(120, 2, 7\)"),
        (blobs() | {"train_labels": np.arange(119) % 3}, "one label for each training feature, got 120 and 119"),
        (blobs() | {"test_labels": np.arange(7) % 3}, "120 test features and 7 test labels"),
        (blobs() | {"test_labels": np.arange(120) % 4}, "0 to 2; got 0 to 3"),
        (blobs() | {"train_labels": np.arange(120) / 1.0}, "whole numbers"),
        (blobs() | {"train_labels": np.arange(120) % 3 - 1}, "from 0"),
        (blobs() | {"train_features": np.full((120, 8), np.nan)}, "960 values of train_features are not finite"),
        (blobs() | {"train_features": np.zeros((120, 2, 4))}, r"\(n, d\)"),
        (blobs() | {"train_labels": np.where(np.arange(120) < 117, np.arange(120) % 2, 2)}, "class 2 has 3"),
        (blobs() | {"train_labels": np.arange(120) % 3 * 2}, "2 of 5 classes have fewer.*class 1 has 0"),
    ],
)
def test_bad_features_are_refused(tmp_path: Path, arrays: Arrays, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TASK.load(FewShotConfig(data=saved(tmp_path, arrays), shots=4))


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    for given, says in (
        ({"shots": 0}, "shots must be at least 1"),
        ({"model": "clip"}, "model is one of tip-adapter"),
        ({"beta": -1.0}, "beta cannot be negative"),
        ({"model": "tip-adapter", "sim": "auto"}, "nothing to train"),
    ):
        with pytest.raises(ValueError, match=says):
            FewShotConfig(**given)
    with pytest.raises(ValueError, match="heads=7"):
        TASK.load(FewShotConfig(model="meta-adapter", heads=7))
    with pytest.raises(LookupError, match=r"no module matches 'blocks\.0'"):
        train(TASK, FewShotConfig(sim="blocks.0"), TASK.load(FewShotConfig()), seed=0, sim=True)
    (tmp_path / "x.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"x\.npz is no \.npz archive"):
        TASK.load(FewShotConfig(data=str(tmp_path / "x.npz")))
