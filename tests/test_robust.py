"""`reglet robust`: one command on any encoder."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from reglet import progress
from reglet.cli import main


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An encoder, trained for a step, on images whose class is their colour."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    images = rng.integers(60, 120, (90, 16, 16, 3), dtype=np.uint8)
    images[np.arange(90), :, :, labels] += 90
    data = tmp_path / "small.npz"
    np.savez(data, images=images, labels=labels, split=np.array(["train"] * 60 + ["test"] * 30))
    words = [f"data={data}", "epochs=1", "batch=60", "projector=16-8", "loss.slices=8", "accelerator=cpu"]
    assert main(["pretrain", *words, f"out={tmp_path / 'a'}"]) == 0
    return tmp_path / "a"


def test_progress_is_shown(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, int | None]] = []

    class Seen(progress.Screen):
        def begin(self, work: progress.Work) -> None:
            begun.append((work.name, work.total))
            super().begin(work)

    monkeypatch.setattr(progress, "_open", Seen)
    assert main(["robust", str(run), "severities=1", "perturbations=true", "images=12"]) == 0
    assert ("corruptions", 15) in begun
    assert ("perturbations", 14) in begun


def test_a_table_and_a_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robust", str(run), "severities=1,5", "perturbations=true", "images=12"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 110
    found = json.loads((run / "robust.json").read_text())
    assert found["images"] == 12
    assert found["clean"] == 1.0, "the colour is there to be read"
    assert len(found["corruptions"]["accuracy"]) == 15
    assert all(len(row) == 2 and 0 <= min(row) <= max(row) <= 1 for row in found["corruptions"]["accuracy"].values())
    assert found["corrupted"] < 1.0, "and some corruption hides it"
    assert len(found["perturbations"]["flip_rate"]) == 14


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["severities=6"], "from 1 to 5"),
        (["perturbations=perhaps"], "true or false"),
        (["images=1"], "images"),
        (["sevrities=1"], "Did you mean"),
        (["more"], "there is no directory more"),
    ],
)
def test_mistakes(run: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robust", str(run), *words]) == 2
    assert says in capsys.readouterr().err


def test_not_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robust", str(tmp_path)]) == 2
    assert "no directory of a run" in capsys.readouterr().err
