"""A checkpoint is whole or it is the one before."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from reglet.engine import checkpoint
from reglet.engine.checkpoint import CheckpointError, collect, read, restore, write
from reglet.engine.optim import build_optimizer
from reglet.engine.run_folder import write_json

FILLED = """
import resource, signal, sys, torch
from pathlib import Path
from reglet.engine.run_folder import write_json
from reglet.engine.checkpoint import CheckpointError, write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
write(path, {"x": torch.ones(10)}, {"step": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # from here on no file may grow beyond this
try:
    write(path, {"x": torch.zeros(100_000)}, {"step": 2})
except CheckpointError as error:
    print(error)
"""


def test_a_write_that_breaks_off_leaves_the_last_good_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    done = subprocess.run([sys.executable, "-c", FILLED, str(path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "could not write" in done.stdout
    assert "the one before it is untouched" in done.stdout
    tensors, about = read(path)
    assert about == {"step": 1}
    assert torch.equal(tensors["x"], torch.ones(10))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_full_disk_leaves_the_last_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may say that it is full only when it is made to write: at fsync."""
    path = tmp_path / "checkpoint.safetensors"
    write(path, {"x": torch.ones(2)}, {"step": 1})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        write(path, {"x": torch.zeros(2)}, {"step": 2})
    monkeypatch.undo()
    assert read(path)[1] == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_as_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories cannot be opened there, and only files that are open for writing can be flushed."""
    import fcntl

    opened, flushed = os.open, os.fsync

    def open_file(path: str | Path, *rest: int) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, *rest)

    def flush(file: int) -> None:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flushed(file)

    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "fsync", flush)
    write(tmp_path / "checkpoint.safetensors", {"x": torch.ones(2)}, {"step": 1})
    write_json(tmp_path / "config.json", {"seed": 0})
    assert read(tmp_path / "checkpoint.safetensors")[1] == {"step": 1}


@pytest.mark.parametrize("name", ["adamw", "lars"])
def test_optimizers_come_back_with_their_layout(name: str, tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)
        return net, build_optimizer(net, name, lr=0.1, weight_decay=0.1)

    def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(step))
            net(x.to(memory_format=torch.channels_last)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    net, optimizer = made()
    train(net, optimizer, range(3))
    write(tmp_path / "c.safetensors", collect(net, optimizer), {})
    train(net, optimizer, range(3, 6))
    other, restored = made()
    restore(read(tmp_path / "c.safetensors")[0], other, restored)
    first = next(iter(restored.state.values()))
    assert any(v.ndim == 4 and v.is_contiguous(memory_format=torch.channels_last) for v in first.values())
    train(other, restored, range(3, 6))
    for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_tied_weights_are_written_twice_and_read_back(tmp_path: Path) -> None:
    net = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    net["b"].weight = net["a"].weight
    write(tmp_path / "c.safetensors", collect(net, build_optimizer(net, "adamw", lr=0.1, weight_decay=0.0)), {})
    assert torch.equal(read(tmp_path / "c.safetensors")[0]["method.b.weight"], net["a"].weight)


def test_what_is_no_checkpoint_says_so(tmp_path: Path) -> None:
    (tmp_path / "c.safetensors").write_bytes(b"not at all")
    with pytest.raises(CheckpointError, match="is no checkpoint of reglet"):
        read(tmp_path / "c.safetensors")


def test_state_that_is_no_tensor_is_refused() -> None:
    class Odd(nn.Linear):
        def get_extra_state(self) -> object:
            return {"a": 1}

    net = Odd(2, 2)
    with pytest.raises(CheckpointError, match="_extra_state is dict"):
        collect(net, build_optimizer(net, "adamw", lr=0.1, weight_decay=0.0))
