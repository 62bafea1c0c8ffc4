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


IN_FRAMES = {"sim_in_lightning", "sim_in_transformers"}
MENDED = f"""
import runpy, sys
from importlib.util import find_spec
sys.path.insert(0, {str(ROOT)!r})
if find_spec("torchvision"):
    import conftest
    conftest.import_torchvision()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(script: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(script)]
    if script.stem in IN_FRAMES:  # which warn about themselves, and import torchvision: conftest.py mends it
        command = [sys.executable, "-c", MENDED, str(script)]
    return subprocess.run(
        [*command, "--out", str(out), *arguments],
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


def demo(out: Path, said: str) -> None:
    from reglet.data import load
    from reglet.evaluate.extract import extract
    from reglet.export import load_encoder

    left = ["card.json", "checkpoint.safetensors", "config.json", "doctor.json", "encoder.safetensors", "eval.json"]
    assert sorted(path.name for path in out.iterdir()) == [*left, "metrics.jsonl", "report.html", "untrained.json"]
    encoder, preprocess, _ = load_encoder(out)
    assert extract(encoder, load("digits", split="test"), preprocess).isfinite().all()
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    assert [row["step"] for row in steps] == [1, 2]
    for row in steps:
        assert row["loss"] == pytest.approx(sum(row[k] for k in ("invariance", "shape", "scale", "center")), rel=1e-5)
    scores = json.loads((out / "eval.json").read_text())
    rows = {"trained": scores["probes"], **scores["untrained"]}
    assert list(rows) == ["trained", "random weights", "raw pixels, 16 x 16"]
    assert rows["raw pixels, 16 x 16"]["linear"]["accuracy"] < 0.3
    page = (out / "report.html").read_text()
    assert len(page) < 6e6
    assert not re.findall(r"(?:src|href|srcset)=\"(?!data:|#)", page)  # nothing is fetched
    for section in ("summary", "training", "map", "geometry", "features", "equivariance", "robustness", "repeat"):
        assert f'<section id="{section}"' in page
    for name, row in rows.items():
        accuracies = (f"{100 * row[probe]['accuracy']:.1f}" for probe in ("linear", "knn"))
        assert re.search(rf"{name} +{' +'.join(accuracies)}", said), said
    assert re.search(r"chance: always '\d' +\d", said)
    assert (out / "report.html").as_uri() in said
    assert "To load it:" in said


def collapse(out: Path, said: str) -> None:
    assert (out / "collapse.png").read_bytes().startswith(b"\x89PNG")
    header, *lines = (out / "collapse.csv").read_text().splitlines()
    assert header == "loss,term,r,gradient_norm,outward"
    assert {line.split(",")[0] for line in lines} == {"VICReg", "Barlow Twins", "SWD", "SIGReg", "VISReg"}
    assert sum(line.startswith("VISReg,total,") for line in lines) == 8
    assert "VISReg" in said


def in_torch(out: Path, said: str) -> None:
    assert [path.name for path in out.iterdir()] == ["heads.safetensors"]
    assert re.search(r"accuracy on 297 other digits: \d", said)


def in_lightning(out: Path, said: str) -> None:
    assert sorted(path.name for path in out.iterdir()) == ["heads.safetensors", "last.ckpt"]
    assert re.search(r"epoch 1  kNN \d+.\d%  linear [89]\d", said), said


def in_transformers(out: Path, said: str) -> None:
    assert "reglet.safetensors" in {path.name for path in out.iterdir()}
    assert "heads of ['vit.layers.0', 'vit.layers.1', 'vit.layers.2']" in said


def in_accelerate(out: Path, said: str) -> None:
    assert "saved: ['model.safetensors', 'reglet.safetensors']" in said


def on_two_ranks(out: Path, said: str) -> None:
    assert re.search(r"heads: rank 0 against rank 1 0.0e\+00, two ranks against one process \d.\de-0[6-9]", said), said


CHECKS = {
    "demo": demo,
    "collapse": collapse,
    "sim_in_torch": in_torch,
    "sim_in_lightning": in_lightning,
    "sim_in_transformers": in_transformers,
    "sim_in_accelerate": in_accelerate,
    "sim_on_two_ranks": on_two_ranks,
}


def test_there_are_examples_to_run() -> None:
    assert {"demo", "collapse"} <= {script.stem for script in EXAMPLES}


def test_the_demo_goes_on_where_it_was_and_wrong_arguments_say_so(tmp_path: Path) -> None:
    wrong = run(ROOT / "examples/demo.py", tmp_path / "out", "epochs=-1")
    assert wrong.returncode == 2
    assert "epochs must be at least 1, got -1" in wrong.stderr
    assert not (tmp_path / "out").exists()
    for _ in range(2):
        done = run(ROOT / "examples/demo.py", tmp_path / "out", "--quick")
        assert done.returncode == 0, done.stderr
        assert "random weights" in done.stdout
