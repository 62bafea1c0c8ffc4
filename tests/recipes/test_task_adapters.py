"""The recipes of few-shot adapters and of image translation, on tiny data and with random weights for ImageNet's."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from recipes.arms import require_data
from recipes.efficientnet_lite0 import EfficientNetLite0

from recipes import few_shot_adapters, photo_to_sketch
from reglet.data import load


@pytest.fixture
def imagenet(monkeypatch: pytest.MonkeyPatch) -> None:
    def random() -> EfficientNetLite0:
        torch.manual_seed(0)
        return EfficientNetLite0().eval()

    monkeypatch.setattr(few_shot_adapters, "pretrained", random)
    monkeypatch.setattr(photo_to_sketch, "pretrained", random)


def test_few_shot_features_are_in_the_layout_of_the_task(data: Path, tmp_path: Path, imagenet: None) -> None:
    few_shot_adapters.prepare(data, tmp_path, epochs=1, size=32)
    found = few_shot_adapters.load(tmp_path)
    assert found["own"].train.shape == (400, 256)
    assert found["efficientnet_lite0"].test.shape == (100, 1280)
    assert found["own"].train_labels.bincount().tolist() == [40] * 10
    assert found["own"].test_labels.tolist() == load(str(data), split="1").labels.tolist()
    run = few_shot_adapters.Run("own", "tip-adapter-f", 2, True, 0, "", steps=3)
    assert few_shot_adapters.compute(run, found)["blocks"] == ["cache"]


def test_few_shot_table(tmp_path: Path, data: Path) -> None:
    rng = np.random.default_rng(0)
    digest = require_data(data)
    folder = tmp_path / f"features-{digest}-8-96"
    folder.mkdir()
    y = np.arange(60) % 10
    for name in few_shot_adapters.ENCODERS:
        x = rng.normal(size=(60, 12))
        np.savez(folder / f"{name}.npz", train_features=x, train_labels=y, test_features=x, test_labels=y)
    words = ["--data", str(data), "--out", str(tmp_path), "--shots", "1", "4", "--seeds", "2", "--workers", "1"]
    assert few_shot_adapters.main([*words, "--steps", "3"]) == 0
    rows = json.loads((tmp_path / "summary.json").read_text())["rows"]
    assert len(rows) == 2 * 3 * 2 + 2 * 2
    assert all((row["difference"] is None) == (row["model"] == "tip-adapter") for row in rows)
    one = next(row for row in rows if row["shots"] == 4 and row["model"] == "meta-adapter" and row["encoder"] == "own")
    every = [json.loads(path.read_text()) for path in tmp_path.glob("*.json") if path.stem != "summary"]
    mine = {
        (r["run"]["seed"], r["run"]["sim"]): r["accuracy"]
        for r in every
        if all(r["run"][key] == one[key] for key in ("encoder", "model", "shots"))
    }
    assert one["difference"][0] == pytest.approx(np.mean([mine[s, True] - mine[s, False] for s in (0, 1)]))
    alone = {r["run"]["seed"]: r["head_alone"] for r in every if (r["run"]["encoder"], r["run"]["shots"]) == ("own", 4)}
    assert one["means of the shots"] == pytest.approx(np.mean(list(alone.values())))
    assert one["without"][0] == pytest.approx(np.mean([mine[s, False] for s in (0, 1)]))


def test_photo_to_sketch(tmp_path: Path, imagenet: None) -> None:
    rng = np.random.default_rng(0)
    for name, n in (("photo", 20), ("sketch", 30)):
        np.savez(tmp_path / f"pacs64_{name}.npz", images=rng.integers(0, 255, (n, 64, 64, 3), np.uint8))
    path = photo_to_sketch.prepare(tmp_path, tmp_path / "out", size=16)
    found = photo_to_sketch.load(path)
    assert [len(x) for x in found.images] == [16, 24, 4, 6]  # from photographs to sketches
    assert found.images.a.shape[1:] == (3, 16, 16)
    first = photo_to_sketch.Run("", 0, 2, 2, 4, 1e-3, 16, "")
    runs = [replace(first, arm=arm) for arm in photo_to_sketch.ARMS]
    results = [{"run": asdict(run), **photo_to_sketch.compute(run, found)} for run in runs]
    assert [bool(r["blocks"]) for r in results] == [photo_to_sketch.ARMS[run.arm].sim for run in runs]
    rows = photo_to_sketch.summarise(results)
    assert [row["arm"] for row in rows] == list(photo_to_sketch.ARMS)
    assert rows[0]["difference"]["content"][0] == results[0]["content"] - results[1]["content"]
    assert "frechet_efficientnet_lite0" in photo_to_sketch.markdown(rows)
    photo_to_sketch.picture(runs, found, tmp_path / "maps.png")
    assert (tmp_path / "maps.png").stat().st_size > 10_000
    with pytest.raises(SystemExit, match="no pacs64_photo"):
        photo_to_sketch.main(["--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "other")])
