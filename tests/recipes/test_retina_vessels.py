import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recipes import retina_vessels as recipe
from reglet.tasks.segmentation.read import read_npz


@pytest.fixture(scope="module")
def vessels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dark bars; the second domain is darker altogether."""
    rng = np.random.default_rng(0)
    masks = np.repeat(rng.integers(0, 2, (16, 1, 32)), 32, axis=1) * 255
    domain = np.arange(16) % 2
    images = 160 - masks[..., None] // 3 - 40 * domain[:, None, None, None] + rng.integers(0, 30, (16, 32, 32, 3))
    path = tmp_path_factory.mktemp("vessels") / "vessels.npz"
    np.savez(
        path,
        images=images.astype(np.uint8),
        masks=(masks - masks // 10 * (rng.random(masks.shape) < 0.5)).astype(np.uint8),  # coverage
        fov=np.ones((16, 32, 32), dtype=np.uint8),
        split=np.arange(16) // 8,
        domain=domain,
        domains=np.array(["bright", "dark"]),
    )
    return path


def test_it_runs_and_pairs(vessels: Path, tmp_path: Path) -> None:
    small = ["--seeds", "2", "--steps", "2", "--crop", "16", "--width", "2", "--workers", "1"]
    assert recipe.main(["--data", str(vessels), "--out", str(tmp_path), *small]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["facts"]["runs"] == 2 * 2 * 3 * 2
    assert len(summary["rows"]) == 2 * 2 * 3
    assert all(0 <= row[score]["without"] <= 100 for row in summary["rows"] for score in recipe.SHOWN)
    assert "| dark | bright | deeplabv3 |" in (tmp_path / "summary.md").read_text()


def test_sim_with_a_vanishing_weight_is_no_sim(vessels: Path) -> None:
    run = recipe.Run("psp", "dark", 1, False, "digest", steps=3, crop=16, width=2)
    raw = read_npz(vessels)
    without = recipe.train(run, raw)
    assert without == recipe.train(replace(run, sim=True, weight=1e-30), raw)
    assert without != recipe.train(replace(run, sim=True, weight=1.0), raw)
    assert without != recipe.train(replace(run, trained_on="bright"), raw)


def test_one_domain_is_not_enough(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    np.savez(path, images=np.zeros((4, 32, 32, 3), dtype=np.uint8), masks=np.ones((4, 32, 32), dtype=np.uint8))
    with pytest.raises(SystemExit, match="has 0 domains; expected two or more"):
        recipe.main(["--data", str(path), "--out", str(tmp_path / "out")])


def test_what_the_paper_was_run_on_is_read() -> None:
    """The real file, where it is."""
    if not recipe.DATA.exists():
        pytest.skip(f"{recipe.DATA} is not here")
    raw = read_npz(recipe.DATA)
    data = recipe.prepare(raw, threshold=recipe.THRESHOLD, crop=64, train_on="DRIVE")
    assert (len(data.train), len(data.test), data.classes) == (20, 28, 2)
    assert data.trained_on == ["DRIVE"]
