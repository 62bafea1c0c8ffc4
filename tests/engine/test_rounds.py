"""doctor= in the loop."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.engine.test_resume import DyingError, Mortal
from tests.engine.toy import feed, images
from torch import nn

from reglet.cli import main
from reglet.doctor import DoctorWarning
from reglet.engine.metrics import read_metrics
from reglet.engine.settings import Settings
from reglet.losses import VICRegLoss
from reglet.methods import JointEmbedding
from reglet.report.gather import gather
from reglet.report.page.parts import Figures
from reglet.report.page.training import training
from reglet.train import fit

WORDS = ["pretrain", "data=digits", "model=convnet", "batch=64", "loss.slices=16", "projector=32-16", "knn_every=0"]


def method() -> JointEmbedding:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return JointEmbedding(backbone, VICRegLoss(), projector=nn.Linear(8, 8))


def looks(out: Path) -> list[dict[str, object]]:
    rows = read_metrics(out / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k != "time"} for row in rows if "doctor.verdict" in row]


def test_a_run_without_a_regularizer_is_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with pytest.warns(DoctorWarning, match="negligible regularizer"):
        code = main([*WORDS, "steps=160", "doctor=stop", "loss.lam=1e-6", f"out={out}"])
    found = looks(out)
    assert found[-1]["doctor.verdict"] == "negligible regularizer"
    steps = [row["step"] for row in read_metrics(out / "metrics.jsonl")]
    assert max(steps) < 160
    assert found[-1]["step"] == max(steps)
    assert isinstance(found[-1]["doctor.share"], float)
    assert code in (0, 130)


def test_a_resumed_run_hears_the_same(tmp_path: Path) -> None:
    """Killed between two looks, after a checkpoint between two looks: the same rows."""
    data = images()
    given = {"accelerator": "cpu", "steps": 140, "batch": 32, "save_every": 110, "doctor": "warn"}
    s = Settings(out=str(tmp_path / "whole"), **given)  # type: ignore[arg-type]
    cut = replace(s, out=str(tmp_path / "cut"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoctorWarning)
        fit(method(), feed(s, data=data), s, shown=False)
        with pytest.raises(DyingError):
            fit(method(), feed(s, data=data, policy=Mortal(117)), cut, shown=False)
        fit(method(), feed(s, data=data), replace(cut, resume=True), shown=False)
    assert [row["step"] for row in looks(tmp_path / "whole")][:1] == [100]
    assert len(looks(tmp_path / "whole")) >= 2
    assert looks(tmp_path / "cut") == looks(tmp_path / "whole")


def test_a_method_without_embeddings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "data=digits", "method=dino", "steps=2", "doctor=warn", f"out={tmp_path}/r"]) == 2
    assert "DINO has none" in capsys.readouterr().err


def test_the_page_names_the_first_alarm(tmp_path: Path) -> None:
    """A regularizer that fades out in the middle: verdicts in metrics.jsonl, and a strip with the alarm on the page."""
    out = tmp_path / "run"
    with pytest.warns(DoctorWarning, match="negligible regularizer"):
        main([*WORDS, "steps=150", "doctor=warn", "loss.lam=linear(0.5,1e-7,steps=110)", f"out={out}"])
    first = next(row for row in looks(out) if row["doctor.verdict"] == "negligible regularizer")
    says = str(first["doctor.says"])
    assert says.startswith(f"step {first['step']}: negligible regularizer. Seen: ")
    found = gather(out, robust_images=8)
    page = training([found], Figures()).shown
    assert f"first alarm at {says}" in page["strip"].says
    assert not any(gap.what == "The doctor while it trained" for gap in page["gaps"])
