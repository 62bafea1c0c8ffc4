"""The recipes on sounds and series at a size of seconds."""

import json
from pathlib import Path

import numpy as np
import pytest

from recipes import audio_sim, series_ssl


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    images = (rng.integers(0, 100, (60, 16, 24, 1)) + 60 * y[:, None, None, None]).astype(np.uint8)
    np.savez(tmp_path / "fsdd_logmel.npz", images=images, labels=y, split=np.arange(60) // 45, db_range=[-60.0, 40.0])
    np.savez(
        tmp_path / "esc10_logmel.npz", images=images, labels=y, fold=np.arange(60) // 12 + 1, db_range=[-70.0, 40.0]
    )
    points = np.sin(np.arange(1000)[:, None] / np.arange(3, 7)) + 0.1 * rng.standard_normal((1000, 4))
    labels = np.zeros(500, np.uint8)
    labels[100:140] = 1
    np.savez(tmp_path / "smd3.npz", a_train=points[:500], a_test=points[500:], a_labels=labels, machines=["a"])
    return tmp_path


def words(folder: Path, out: Path, *more: str) -> list[str]:
    return ["--data", str(folder), "--out", str(out), "--seeds", "2", "--workers", "1", "--steps", "2", *more]


def test_audio_sim(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audio_sim.main(words(folder, tmp_path / "out")) == 0
    rows = json.loads((tmp_path / "out/summary.json").read_text())["rows"]
    assert [(row["sounds"], row["model"]) for row in rows] == [
        (s, m) for s in audio_sim.FILES for m in audio_sim.MODELS
    ]
    assert "+1.25, +0.21, +0.90" in capsys.readouterr().out
    assert audio_sim.main(words(folder, tmp_path / "out")) == 0
    assert "32 of 32 runs are stored" in capsys.readouterr().out


def test_series_ssl(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert series_ssl.main(words(folder, tmp_path / "out", "--batch", "16")) == 0
    rows = json.loads((tmp_path / "out/summary.json").read_text())["rows"]
    assert [(row["series"], row["arm"]) for row in rows] == [(s, a) for s in series_ssl.FILES for a in series_ssl.ARMS]
    by_arm = {row["arm"]: row for row in rows[:7]}
    assert set(by_arm["smi + SIM"]) >= {"minus random", "minus none", "minus smi"}
    assert not any(key.startswith("minus") for key in (*by_arm["raw"], *by_arm["random"]))
    capsys.readouterr()


def test_every_fold_is_tested_once(folder: Path) -> None:
    runs = [audio_sim.Run("esc10", "tdnn", seed, 0.0, "") for seed in range(5)]
    assert [audio_sim.config_of(run, folder).fold for run in runs] == [1, 2, 3, 4, 5]
    assert audio_sim.config_of(audio_sim.Run("fsdd", "tdnn", 3, 0.0, ""), folder).fold == 0


def test_differences_are_paired_by_seed() -> None:
    def result(seed: int, weight: float, accuracy: float) -> dict:
        return {"run": vars(audio_sim.Run("fsdd", "tdnn", seed, weight, "")), "accuracy": accuracy, "f1": accuracy}

    found = [result(seed, w, 10.0 * seed + (1 + seed % 2) * (w > 0)) for seed in range(3) for w in (0.0, 5e-3)]
    (row,) = audio_sim.summarise(found)
    assert row["accuracy"]["without"][0] == pytest.approx(10)
    assert row["accuracy"]["difference"][0] == pytest.approx(4 / 3)


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    for recipe, name in ((audio_sim, "fsdd_logmel.npz and esc10"), (series_ssl, "smd3.npz")):
        with pytest.raises(SystemExit, match=name):
            recipe.main(["--data", str(tmp_path)])
