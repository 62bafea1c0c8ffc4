import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recipes import anomaly_sim as recipe


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two machines whose sines stop for 30 points."""
    folder, arrays = tmp_path_factory.mktemp("series"), {}
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        t = np.arange(600)[:, None] / 12 + rng.random(4)
        x = np.sin(2 * np.pi * t) + 0.1 * rng.normal(size=(600, 4))
        labels = np.arange(300) // 30 == 4
        x[300:][labels] = 0
        arrays |= {f"{name}_train": x[:300], f"{name}_test": x[300:], f"{name}_labels": labels}
    np.savez(folder / "smd3.npz", **arrays)
    return folder


def test_it_runs_and_pairs(sets: Path, tmp_path: Path) -> None:
    small = ["--sets", "smd3", "--models", "lightts", "mambats", "--seeds", "2", "--steps", "3", "--window", "20"]
    assert recipe.main(["--data", str(sets), "--out", str(tmp_path), "--workers", "1", *small]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["facts"]["runs"] == 2 * 2 * 2
    assert [row["model"] for row in summary["rows"]] == ["lightts", "mambats", "all", "random scores"]
    first, second, both, chance = summary["rows"]
    for score in recipe.SHOWN:
        middle = (first["difference"][score][0] + second["difference"][score][0]) / 2
        assert both["difference"][score][0] == pytest.approx(middle)
    assert chance["difference"] == {}
    assert "| smd3 | lightts |" in (tmp_path / "summary.md").read_text()


def test_a_vanishing_weight_is_no_sim(sets: Path) -> None:
    data = recipe.load(sets)
    run = recipe.Run("smd3", "itransformer", 1, 0.0, "digest", steps=5, window=20, ratio=1.0, batch=8)
    without, vanishing, large = (recipe.compute(replace(run, weight=weight), data) for weight in (0.0, 1e-30, 10.0))
    assert without == vanishing
    assert without != large


def test_without_data_it_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no data at .*smd3.npz. Give --data a folder"):
        recipe.main(["--data", str(tmp_path), "--out", str(tmp_path)])
