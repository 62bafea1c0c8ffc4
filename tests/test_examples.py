"""Every example runs, at --quick size, and leaves what it says.  A new file in examples/ is covered by being there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))


def run(script: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(script), "--out", str(out), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # two workers on two cores
        cwd=out.parent,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(script, out, "--quick")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert sorted(path.name for path in tmp_path.iterdir()) in (["out"], [])  # nothing outside its folder
    check = CHECKS.get(script.stem)
    if check is not None:
        check(out, done.stdout)


def digits(out: Path, said: str) -> None:
    import torch
    from safetensors.torch import load_file

    from reglet.backbones import ConvNet
    from reglet.data import canvas_digits

    assert sorted(path.name for path in out.iterdir()) == ["encoder.safetensors", "metrics.jsonl", "report.html"]
    net = ConvNet(widths=(32, 64, 128), depth=2, stride=2)
    net.load_state_dict(load_file(out / "encoder.safetensors"))
    assert int(net.state_dict()["stages.0.1.num_batches_tracked"]) == 4  # it was trained
    assert net.eval()((canvas_digits("test").images[:4].float() - 127.5) / 64).isfinite().all()
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps, scores = rows[:-3], rows[-3:]
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    for row in steps:
        assert row["loss"] == pytest.approx(sum(row[k] for k in ("invariance", "shape", "scale", "center")), rel=1e-5)
    assert [row["features"] for row in scores] == ["raw pixels", "random encoder", "VISReg"]
    assert all(0 <= row[kind] <= 1 for row in scores for kind in ("linear", "knn"))
    assert torch.tensor([row["lr"] for row in steps]).max() == pytest.approx(3e-3)
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 6  # two charts for two kinds of screen, two montages
    assert not re.findall(r"(?:src|href|srcset)=\"(?!data:)", page)  # nothing is fetched
    for row in scores:
        assert f"{row['linear']:.1%}" in page
        assert f"{row['linear']:.1%}" in said
    assert (out / "report.html").as_uri() in said


def collapse(out: Path, said: str) -> None:
    assert (out / "collapse.png").read_bytes().startswith(b"\x89PNG")
    header, *lines = (out / "collapse.csv").read_text().splitlines()
    assert header == "loss,term,r,gradient_norm,outward"
    assert {line.split(",")[0] for line in lines} == {"VICReg", "Barlow Twins", "SWD", "SIGReg", "VISReg"}
    assert sum(line.startswith("VISReg,total,") for line in lines) == 8
    assert "VISReg" in said


CHECKS = {"digits": digits, "collapse": collapse}


def test_there_are_examples_to_run() -> None:
    assert {"digits", "collapse"} <= {script.stem for script in EXAMPLES}


def test_wrong_arguments_say_so(tmp_path: Path) -> None:
    done = run(ROOT / "examples/digits.py", tmp_path / "out", "--epochs", "0")
    assert done.returncode == 2
    assert "--epochs must be at least 1, got 0" in done.stderr
    assert not (tmp_path / "out").exists()
