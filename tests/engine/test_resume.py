"""A run that was killed and resumed is, to the bit, the run that was not."""

import random
import signal
import time
from pathlib import Path

import pytest
import torch
from tests.engine.processes import code, start

from reglet.engine.checkpoint import read
from reglet.engine.metrics import read_metrics

COMMON = ("accelerator=cpu", "epochs=4", "batch=16")  # 24 steps


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
    straight = start(f"out={tmp_path / 'a'}", *COMMON, *words)
    # The first time before there is any checkpoint, later at steps that differ from test run to test run.
    for i, step in enumerate([1, *random.SystemRandom().sample(range(3, 7), 3)]):
        resume = f"resume={'true' if i else 'false'}"
        killed = start(f"out={tmp_path / 'b'}", *COMMON, *words, resume, f"kill={step}")
        assert code(killed) == -signal.SIGKILL, step
    assert code(start(f"out={tmp_path / 'b'}", *COMMON, *words, "resume=true")) == 0
    assert code(straight) == 0
    same(tmp_path / "b", tmp_path / "a")
    rows = [[row["step"], row["loss"]] for row in read_metrics(tmp_path / "b" / "metrics.jsonl")]
    assert rows == [[row["step"], row["loss"]] for row in read_metrics(tmp_path / "a" / "metrics.jsonl")]


def test_sigterm_saves_and_exits_cleanly(tmp_path: Path) -> None:
    words = (*COMMON, "save_every=1000", "log_every=1")
    straight = start(f"out={tmp_path / 'a'}", *words)
    process = start(f"out={tmp_path / 'b'}", *words, "pause=0.2")
    metrics = tmp_path / "b" / "metrics.jsonl"
    while not metrics.exists() or not metrics.read_text():
        assert process.is_alive()
        time.sleep(0.05)
    assert process.pid is not None
    process.terminate()
    assert code(process) == 0
    steps = read(tmp_path / "b" / "checkpoint.safetensors")[1]["step"]
    assert 1 <= steps < 24
    assert read_metrics(metrics)[-1]["step"] == steps
    assert code(start(f"out={tmp_path / 'b'}", *words, "resume=true")) == 0
    assert code(straight) == 0
    same(tmp_path / "b", tmp_path / "a")
