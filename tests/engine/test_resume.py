"""A run that was killed and resumed is, to the bit, the run that was not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from reglet.engine.checkpoint import read
from reglet.engine.metrics import read_metrics

TOY = Path(__file__).with_name("toy.py")


def start(out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(TOY), f"out={out}", "accelerator=cpu", "epochs=4", "batch=16", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path.cwd()
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def same(a: Path, b: Path) -> None:
    (ours, about), (theirs, reference) = read(a / "checkpoint.safetensors"), read(b / "checkpoint.safetensors")
    assert about["step"] == reference["step"] == 24
    assert ours.keys() == theirs.keys()
    assert any(key.startswith("optimizer.") for key in ours)
    for key, value in ours.items():
        assert torch.equal(value, theirs[key]), key


@pytest.mark.parametrize(
    "words",
    [
        ("dropout=0.3", "ema=0.9", "save_every=3"),
        ("norm=0", "micro_batch=6", "dropout=0.3", "optimizer=lars", "clip=1", "save_every=5"),
    ],
    ids=["ema", "cache"],
)
def test_killed_anywhere_and_resumed_ends_in_the_same_bits(tmp_path: Path, words: tuple[str, ...]) -> None:
    straight = start(tmp_path / "a", *words)
    for i, step in enumerate((1, 4, 7)):  # the first before any checkpoint, the others between two
        resume = "false" if i == 0 else "true"
        code, _, err = finish(start(tmp_path / "b", *words, f"resume={resume}", f"kill={step}"))
        assert code == -signal.SIGKILL, err
    code, out, err = finish(start(tmp_path / "b", *words, "resume=true"))
    assert (code, out) == (0, "24 True\n"), err
    assert finish(straight)[0] == 0
    same(tmp_path / "b", tmp_path / "a")
    rows = [[row["step"], row["loss"]] for row in read_metrics(tmp_path / "b" / "metrics.jsonl")]
    assert rows == [[row["step"], row["loss"]] for row in read_metrics(tmp_path / "a" / "metrics.jsonl")]


def test_sigterm_saves_and_exits_cleanly(tmp_path: Path) -> None:
    words = ("save_every=1000", "log_every=1")
    straight = start(tmp_path / "a", *words)
    process = start(tmp_path / "b", *words, "pause=0.2")
    while not (tmp_path / "b" / "metrics.jsonl").exists() or not (tmp_path / "b" / "metrics.jsonl").read_text():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 0, err
    steps, finished = out.split()
    assert finished == "False"
    assert 1 <= int(steps) < 24
    assert read(tmp_path / "b" / "checkpoint.safetensors")[1]["step"] == int(steps)
    assert finish(start(tmp_path / "b", *words, "resume=true"))[1] == "24 True\n"
    assert finish(straight)[0] == 0
    same(tmp_path / "b", tmp_path / "a")
