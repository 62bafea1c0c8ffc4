"""A run that was killed and resumed is, to the bit, the run that was not."""

import random
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.engine.processes import code, start
from tests.engine.toy import Brighten, Shift, feed, images, toy
from torch import Tensor

from reglet.engine.checkpoint import read
from reglet.engine.metrics import read_metrics
from reglet.engine.monitor import OnlineKNN
from reglet.engine.settings import Settings
from reglet.train import fit

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
    assert rows(tmp_path / "b") == rows(tmp_path / "a")


def rows(run: Path) -> list[dict[str, float]]:
    """metrics.jsonl but for the times."""
    every = read_metrics(run / "metrics.jsonl")
    return [{key: value for key, value in row.items() if key not in ("time", "images_per_second")} for row in every]


class DyingError(Exception):
    pass


class Mortal(Brighten):
    """Dies in step `kill`."""

    def __init__(self, kill: int) -> None:
        super().__init__()
        self.left = kill

    def apply(self, images: Tensor, draws: Sequence[Shift]) -> list[Tensor]:
        self.left -= 1
        if self.left < 0:
            raise DyingError
        return super().apply(images, draws)


def test_the_journal_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """A line has the steepest gradient since the line before: also of steps before the checkpoint."""
    data = images()
    knn = OnlineKNN(data, lambda x: x.float() / 255, test=data)
    given = {"accelerator": "cpu", "epochs": 2, "batch": 16, "save_every": 10, "lr": 0.05, "warmup": 0.0}  # 12 steps
    s = Settings(out=str(tmp_path / "a"), log_every=11, **given)  # type: ignore[arg-type]
    straight = fit(toy(), feed(s, data=data), s, watch=[knn], shown=False)
    fit(toy(), feed(s, data=data), replace(s, out=str(tmp_path / "every"), log_every=1), shown=False)
    steepest = max(rows(tmp_path / "every")[:11], key=lambda row: row["grad_norm"])
    assert steepest["step"] <= 10, "else the test shows nothing"
    for out, kills in (("b", [10]), ("c", [5, 11, 0])):
        for i, kill in enumerate(kills):
            dying, own = feed(s, data=data, policy=Mortal(kill)), replace(s, out=str(tmp_path / out), resume=i > 0)
            with pytest.raises(DyingError):
                fit(toy(), dying, own, watch=[knn], shown=False)
        own = replace(s, out=str(tmp_path / out), resume=True)
        again = fit(toy(), feed(s, data=data), own, watch=[knn], shown=False)
        assert rows(tmp_path / out) == rows(tmp_path / "a")
        assert again.metrics.keys() == straight.metrics.keys()


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
