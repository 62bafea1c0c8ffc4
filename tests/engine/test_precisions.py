"""Every command in every precision, sharded or not, with a moving average or without: trained, scored, exported."""

import math
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.ranks import run as start

COMMANDS, PRECISIONS = ("pretrain", "train"), ("32-true", "bf16-mixed", "bf16-true")
MORE: tuple[dict[str, object], ...] = ({}, {"strategy": "fsdp"}, {"ema": 0.99}, {"micro_batch": 5}, {"accumulate": 3})
EVERY = [
    (command, precision, more)
    for command, precision, more in product(COMMANDS, PRECISIONS, MORE)
    if not (command == "train" and "micro_batch" in more)
]


def work(rank: int, world: int) -> list[str]:
    """What went wrong in each, in a process of its own, because a sharded run leaves a process group behind."""
    with tempfile.TemporaryDirectory() as folder:
        return [_one(Path(folder) / str(i), *case) for i, case in enumerate(EVERY)]


def _one(out: Path, command: str, precision: str, more: dict[str, object]) -> str:
    from reglet.engine.checkpoint import read
    from reglet.engine.config import Config
    from reglet.evaluate.embed import embed
    from reglet.train import run

    data = out.parent / "x.npz"
    if not data.exists():
        rng = np.random.default_rng(0)
        pixels = rng.integers(0, 256, (20, 16, 16, 3), dtype=np.uint8)
        np.savez(data, images=pixels, labels=np.arange(20) % 2, split=np.array(["train"] * 12 + ["test"] * 8))
    given = {"projector": "8-8", "options": {"loss.slices": 8}} if command == "pretrain" else {}
    given |= {"command": command, "precision": precision, "accelerator": "cpu", **more}
    try:
        config = Config(data=str(data), model="convnet", epochs=3, batch=12, out=str(out), **given)  # type: ignore[arg-type]
        result = run(config, shown=False)
        wanted = {"knn", "rank", "loss"} | ({"accuracy"} if command == "train" else set())
        assert wanted <= result.metrics.keys(), result.metrics
        assert all(math.isfinite(value) for value in result.metrics.values()), result.metrics
        embed(out, str(data), out / "features.npz", split="test")
        x = np.load(out / "features.npz")["features"]
        assert x.shape[0] == 8 and np.isfinite(x).all()  # noqa: PT018
        if "ema" in more:
            kept = {value.dtype for key, value in read(out / "checkpoint.safetensors")[0].items() if "ema.mod" in key}
            assert torch.bfloat16 not in kept, "a moving average is in float32"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    # Without it, oneDNN's bfloat16 products fail on some CPUs that have no such instructions.
    isa = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
    target = "tests.engine.test_precisions:work"
    found: list[str] = start(target, world=1, folder=tmp_path_factory.mktemp("ranks"), environment=isa)[0]
    return found


@pytest.mark.parametrize("i", range(len(EVERY)), ids=[f"{c}-{p}-{'-'.join(m) or 'plain'}" for c, p, m in EVERY])
def test_a_run(i: int, failures: list[str]) -> None:
    assert failures[i] == ""
