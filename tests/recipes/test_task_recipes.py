"""The recipes that train a task, at a size of seconds: they run by the frame, and their arms are what they say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from recipes.efficientnet_lite import EfficientNetLite
from recipes.recipe import main

from recipes import (
    anomaly_sim,
    anomaly_sim_full,
    audio_sim,
    few_shot_adapters,
    photo_to_sketch,
    retina_vessels,
    series_predict,
    series_ssl,
)
from reglet.runs import Run, read_summary

TINY = {"seeds": "2", "jobs": "1", "steps": "2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sounds, machines, vessels and two domains of images."""
    at = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    images = (rng.integers(0, 100, (60, 16, 32, 1)) + 60 * y[:, None, None, None]).astype(np.uint8)
    np.savez(at / "fsdd_logmel.npz", images=images, labels=y, split=np.arange(60) // 45, db_range=[-60.0, 40.0])
    np.savez(at / "esc10_logmel.npz", images=images, labels=y, fold=np.arange(60) // 12 + 1, db_range=[-70.0, 40.0])
    points = np.sin(np.arange(1000)[:, None] / np.arange(3, 7)) + 0.1 * rng.standard_normal((1000, 4))
    labels = np.zeros(500, np.uint8)
    labels[100:140] = 1
    np.savez(at / "smd3.npz", a_train=points[:500], a_test=points[500:], a_labels=labels, machines=["a"])
    masks = np.repeat(rng.integers(0, 2, (16, 1, 32)), 32, axis=1) * 255
    dark = np.arange(16) % 2
    pictures = 160 - masks[..., None] // 3 - 40 * dark[:, None, None, None] + rng.integers(0, 30, (16, 32, 32, 3))
    np.savez(
        at / "vessels.npz",
        images=pictures.astype(np.uint8),
        masks=masks.astype(np.uint8),
        fov=np.ones((16, 32, 32), dtype=np.uint8),
        split=np.arange(16) // 8,
        domain=dark,
        domains=np.array(["DRIVE", "CHASE_DB1"]),
    )
    for name, n in (("photo", 20), ("sketch", 30)):
        np.savez(at / f"pacs64_{name}.npz", images=rng.integers(0, 255, (n, 64, 64, 3), np.uint8))
    return at


def words(out: Path, **changes: object) -> list[str]:
    return [f"{key}={value}" for key, value in {**TINY, "out": out, **changes}.items()]


@pytest.fixture
def imagenet(monkeypatch: pytest.MonkeyPatch) -> None:
    def random() -> EfficientNetLite:
        torch.manual_seed(0)
        return EfficientNetLite().eval()

    monkeypatch.setattr(few_shot_adapters, "pretrained", random)
    monkeypatch.setattr(few_shot_adapters, "class_rows", lambda: torch.randn(1000, 1280))
    monkeypatch.setattr(photo_to_sketch, "pretrained", random)


def test_sounds(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folds = ("tdnn", "campplus")
    printed = [p for p in audio_sim.RECIPE.printed if p.folds[0] in folds]
    small = replace(audio_sim.RECIPE, folds=folds, printed=printed)
    assert main(small, words(tmp_path, data=folder)) == 0
    (gates, *others) = [c["gates"] for c in read_summary(tmp_path / "summary.json")["claims"]]
    assert [(g["name"], g["passed"]) for g in gates][:1] == [("without above raw maps", False)], "of a step or two"
    assert len(others) == 1
    assert "| with SIM | without |" in capsys.readouterr().out


def test_every_part_of_the_sounds_is_tested_once(folder: Path) -> None:
    settings = audio_sim.RECIPE.settings
    runs = [Run("without", seed, "tdnn", settings) for seed in range(1, 7)]
    assert [audio_sim.config_of(run, folder).fold for run in runs] == [1, 2, 3, 4, 5, 1]


def test_series(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = {arm: series_ssl.RECIPE.arms[arm] for arm in ("raw", "random", "smi", "smi + SIM")}
    small = replace(series_ssl.RECIPE, arms=arms)
    assert main(small, words(tmp_path, data=folder, batch=16)) == 0
    printed = capsys.readouterr().out
    assert all(f"| {arm} |" in printed for arm in arms)


def test_prediction_of_series(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = {arm: series_predict.RECIPE.arms[arm] for arm in ("random", "smi", "predict sigreg")}
    asked = [p for p in series_predict.RECIPE.printed if {p.arm, p.versus} <= arms.keys() and p.folds == ("fsdd",)]
    own = {"folds": ("fsdd", "smd3"), "files": ("fsdd_logmel.npz", "smd3.npz"), "once": ()}
    small = replace(series_predict.RECIPE, arms=arms, printed=asked, **own)
    assert main(small, words(tmp_path, data=folder, batch=16)) == 0
    printed = capsys.readouterr().out
    assert all(f"| {arm} |" in printed for arm in arms)
    claims = read_summary(tmp_path / "summary.json")["claims"]
    assert [c["claim"] for c in claims] == [
        "predicting with SIGReg beats no training on spoken digits",
        "predicting with SIGReg beats invariance (SMI) on spoken digits",
    ]


def test_anomalies(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fold = "smd3, lightts"
    printed = [p for p in anomaly_sim.RECIPE.printed if p.folds == (fold,)]
    small = replace(anomaly_sim.RECIPE, folds=(fold,), files=("smd3.npz",), printed=printed)
    assert main(small, words(tmp_path, data=folder, window=20)) == 0
    (claim,) = read_summary(tmp_path / "summary.json")["claims"]
    assert (claim["printed"], claim["measure"]) == (0.89, "adjusted_f1")
    assert claim["reference"]["name"] == "random scores"
    settings = {**anomaly_sim.RECIPE.settings, "steps": 3, "window": 20}
    without, vanishing, large = (
        anomaly_sim.compute(Run("", 1, fold, {**settings, **changes}), folder)
        for changes in ({}, {"sim": "auto", "weight": 1e-30}, {"sim": "auto", "weight": 10.0})
    )
    assert without == vanishing != large


def test_anomalies_at_a_published_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(anomaly_sim, "machines", lambda path: None)
    monkeypatch.setattr(anomaly_sim, "train_task", lambda name, task, config, data, seed: seen.append(config.model))
    recipe = anomaly_sim_full.RECIPE
    recipe.compute(Run("without", 1, recipe.folds[0], recipe.settings), Path())
    assert seen == ["itransformer"]
    assert [p.effect for p in recipe.printed] == [7.12]


def test_vessels(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(retina_vessels.RECIPE, words(tmp_path, data=folder / "vessels.npz", crop=16, width=2)) == 0
    assert "dice abroad" in capsys.readouterr().out


def test_features_for_adapters_are_made_once(data: Path, tmp_path: Path, imagenet: None) -> None:
    settings = {"data": "digest", "size": 32}
    made = few_shot_adapters.prepare(data, tmp_path, settings)
    found = few_shot_adapters.RECIPE.load(made)
    assert found.test.shape == (100, 1280)
    assert found.views.shape == (400, few_shot_adapters.VIEWS, 1280)
    assert found.class_features.shape == (10, 1280)
    assert found.train_labels.bincount().tolist() == [40] * 10
    before = made.stat().st_mtime_ns
    assert few_shot_adapters.prepare(data, tmp_path, settings) == made
    assert made.stat().st_mtime_ns == before
    run = Run("", 1, "", {**few_shot_adapters.RECIPE.settings, "sim": "auto", "steps": 3, "shots": 2})
    assert few_shot_adapters.compute(run, found).keys() == {"accuracy", "head_alone"}


def test_translations(folder: Path, tmp_path: Path, imagenet: None, capsys: pytest.CaptureFixture[str]) -> None:
    arms = {arm: photo_to_sketch.ARMS[arm] for arm in ("neither", "PatchNCE", "SIM")}
    small = replace(photo_to_sketch.RECIPE, arms=arms)
    assert main(small, words(tmp_path, data=folder, size=16, width=4, batch=2)) == 0
    assert (tmp_path / "maps.png").stat().st_size > 10_000
    claims = read_summary(tmp_path / "summary.json")["claims"]
    assert [(c["sign"], c["measure"]) for c in claims] == [
        (-1, photo_to_sketch.NAME),
        (1, "content"),
        (1, "content"),
        (-1, photo_to_sketch.NAME),
    ]
