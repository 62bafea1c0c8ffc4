"""Several processes train as one does on the same global batch."""

import os
import sys
from pathlib import Path

import pytest
import torch
from tests.engine.processes import code, start, start_ranks
from torch import Tensor

from reglet.engine.checkpoint import read

COMMON = ("accelerator=cpu", "epochs=4", "batch=16", "norm=0", "weight_decay=0.1")  # 24 steps


def weights(out: Path) -> dict[str, Tensor]:
    tensors, about = read(out / "checkpoint.safetensors")
    assert about["step"] == 24
    return tensors


@pytest.mark.parametrize(
    ("both", "words"),
    [
        ((), ()),
        # In single precision Adam makes 3e-5 of the rounding of small gradients, their parts summed in another order.
        (("double=1",), ("strategy=fsdp",)),
        (("double=1", "optimizer=sgd"), ("strategy=fsdp",)),
        (("double=1", "optimizer=lars", "lr=0.1"), ("strategy=fsdp",)),
        (("double=1",), ("micro_batch=3",)),
    ],
    ids=["ddp", "fsdp", "fsdp sgd", "fsdp lars", "cache"],
)
def test_two_ranks_end_where_one_does(tmp_path: Path, both: tuple[str, ...], words: tuple[str, ...]) -> None:
    one = start(f"out={tmp_path / 'one'}", *COMMON, *both)
    two = start_ranks(2, f"out={tmp_path / 'two'}", *COMMON, *both, *words)
    assert [code(rank) for rank in (one, *two)] == [0, 0, 0]
    alone, found = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert found.keys() == alone.keys()
    for key, value in alone.items():
        if key.startswith("method."):
            torch.testing.assert_close(
                found[key], value, rtol=0, atol=1e-9 if both else 1e-5, msg=lambda m, key=key: f"{key}: {m}"
            )


def test_sharded_weights_resume_to_the_same_bits(tmp_path: Path) -> None:
    words = (*COMMON, "strategy=fsdp", "save_every=5")
    assert [code(rank) for rank in start_ranks(2, f"out={tmp_path / 'a'}", *words)] == [0, 0]
    killed = start_ranks(2, f"out={tmp_path / 'b'}", *words, "kill=7")
    assert all(c != 0 for c in [code(rank) for rank in killed])
    assert [code(rank) for rank in start_ranks(2, f"out={tmp_path / 'b'}", *words, "resume=true")] == [0, 0]
    a, b = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_what_fails_on_one_rank_fails_on_all(tmp_path: Path) -> None:
    """Reading a batch is no collective: without a word the first rank would wait in the loss for the second."""
    ranks = start_ranks(2, f"out={tmp_path}", *COMMON, "fail=2")
    assert all(code(rank, seconds=120) not in (0, None) for rank in ranks)
    assert (tmp_path / "error-1").read_text() == "OSError: the disk is gone"
    assert (tmp_path / "error-0").read_text() == "RuntimeError: rank 1: OSError: the disk is gone"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("breaks", ["journal", "score"])
def test_what_fails_on_the_rank_that_writes_fails_on_all(tmp_path: Path, breaks: str, strategy: str) -> None:
    """Under fsdp the other rank is inside of a score then, and about to put weights together."""
    ranks = start_ranks(2, f"out={tmp_path}", *COMMON, f"breaks={breaks}", "log_every=3", f"strategy={strategy}")
    assert all(code(rank, seconds=120) not in (0, None) for rank in ranks)
    assert (tmp_path / "error-0").read_text() == "OSError: the disk is gone"
    assert (tmp_path / "error-1").read_text() == "RuntimeError: rank 0: OSError: the disk is gone"


def main(words: list[str]) -> None:
    """A command whose data the second rank cannot open."""
    import reglet.train
    from reglet import cli
    from reglet.tasks.audio import TASK
    from reglet.tasks.domains.task import DomainsTask

    def no_data(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    if os.environ["RANK"] == "1":
        for owner, name in ((reglet.train, "build_parts"), (type(TASK), "load"), (DomainsTask, "load")):
            setattr(owner, name, no_data)
    sys.exit(cli.main(words))


OPENING = {
    "pretrain": ["pretrain", "data=digits", "model=convnet", "steps=2"],
    "audio": ["train", "task=audio", "steps=2"],
    "domains": ["train", "task=domains", "data=digits", "model=convnet", "steps=6"],
}


@pytest.mark.parametrize("name", OPENING)
def test_data_that_one_rank_cannot_open_end_all(tmp_path: Path, name: str) -> None:
    words = [*OPENING[name], "batch=16", "accelerator=cpu", f"out={tmp_path / 'run'}"]
    first, second = start_ranks(2, *words, module="tests.engine.test_ranks")
    assert (code(first, seconds=60), code(second, seconds=60)) == (1, 2)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_what_is_not_finite_on_one_rank_stops_all(tmp_path: Path, strategy: str) -> None:
    """A term without a gradient: DDP's average does not carry it to the other rank."""
    ranks = start_ranks(2, f"out={tmp_path}", *COMMON, f"strategy={strategy}", "nan=3", "save_every=2")
    assert all(code(rank, seconds=120) not in (0, None) for rank in ranks)
    assert "step 3: extra = nan. The weights were not changed" in (tmp_path / "error-1").read_text()
    assert "step 3: the loss or gradient was not finite, but only on another rank" in (tmp_path / "error-0").read_text()
    kept, about = read(tmp_path / "checkpoint.safetensors")
    bundle, said = read(tmp_path / "replay-step-3.safetensors")
    assert (about["step"], said["step"]) == (2, 3)
    assert {f"method.{name}" for name in ("head.weight", "seen")} <= bundle.keys() & kept.keys()


@pytest.mark.parametrize("ranks", [1, 4])
def test_sharded_weights_go_on_with_another_number_of_ranks(tmp_path: Path, ranks: int) -> None:
    words = (*COMMON, "double=1", "strategy=fsdp", "save_every=5", f"out={tmp_path}")
    one = start(*COMMON, "double=1", f"out={tmp_path / 'one'}")
    assert all(code(rank) != 0 for rank in start_ranks(2, *words, "kill=7"))
    again = start_ranks(ranks, *words, "resume=true")
    assert [code(rank) for rank in (one, *again)] == [0] * (1 + ranks)
    alone, found = weights(tmp_path / "one"), weights(tmp_path)
    for key, value in alone.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=1e-9, msg=lambda m, key=key: f"{key}: {m}")
