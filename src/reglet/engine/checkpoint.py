"""One file for each checkpoint: tensors as safetensors, everything else as JSON in its header.  Nothing is unpickled.

The file is written under another name, flushed to the disk and renamed.  So a run that is killed, or finds the disk
full, keeps its old checkpoint.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from reglet.engine.shard import laid_out_like, whole

Json = dict[str, Any]
Optimizer = torch.optim.Optimizer
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read."""


def write(path: Path, tensors: Mapping[str, Tensor], about: Json, *, writes: bool = True) -> None:
    """Writes atomically: whatever happens, the old or the new file is at `path`.

    Sharded tensors are gathered one at a time, so that no rank holds all of them.  Every rank must call this; only the
    first one `writes`.
    """
    fresh = path.with_name(path.name + ".tmp")
    names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)  # so that each is aligned
    rest = _bytes(tensors, names)
    if not writes:
        for _ in rest:
            pass
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            file.write(_header({name: tensors[name] for name in names}, about))
            for data in rest:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except Exception as error:
        for _ in rest:  # the other ranks wait for the parts of this one
            pass
        fresh.unlink(missing_ok=True)
        kept = "the one before it is untouched" if path.exists() else "there was none before it"
        raise CheckpointError(f"could not write {path}: {error} ({kept})") from error
    with suppress(OSError):  # Windows cannot open directories, and some file systems cannot flush them
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # otherwise a power failure could undo the rename
        finally:
            os.close(folder)


def read(path: Path) -> tuple[dict[str, Tensor], Json]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, json.loads((file.metadata() or {})["about"])  # noqa: SIM118
    except Exception as error:
        raise CheckpointError(f"{path} is no checkpoint of reglet: {error}") from error


def read_about(path: Path) -> Json:
    """Reads the JSON only."""
    try:
        with safe_open(path, framework="pt") as file:
            about: Json = json.loads((file.metadata() or {})["about"])
            return about
    except Exception as error:
        raise CheckpointError(f"{path} is no checkpoint of reglet: {error}") from error


def collect(method: nn.Module, optimizer: Optimizer | None, ema: nn.Module | None = None) -> dict[str, Tensor]:
    """Every tensor of a run by name.  Sharded tensors stay sharded."""
    tensors = {f"method.{key}": _tensor(key, value) for key, value in method.state_dict().items()}
    for name, p in [] if optimizer is None else _trained(method, optimizer):
        for key, value in optimizer.state.get(p, {}).items():  # type: ignore[union-attr]
            tensors[f"optimizer.{name}.{key}"] = _tensor(key, value)
    if ema is not None:
        tensors |= {f"ema.{key}": _tensor(key, value) for key, value in ema.state_dict().items()}
    return tensors


def restore(
    tensors: Mapping[str, Tensor], method: nn.Module, optimizer: Optimizer, ema: nn.Module | None = None
) -> None:
    """The inverse of `collect`, in place."""
    load_module(method, part(tensors, "method."))
    if ema is not None:
        load_module(ema, part(tensors, "ema."))
    state: dict[int, dict[str, Tensor]] = {}
    for i, (name, p) in enumerate(_trained(method, optimizer)):
        found = part(tensors, f"optimizer.{name}.")
        state[i] = {key: laid_out_like(value, p) for key, value in found.items() if "." not in key}
    state = {i: kept for i, kept in state.items() if kept}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


class Stored(Mapping[str, Tensor]):
    """The tensors of a checkpoint whose names begin with `prefix`.  Each is read when it is asked for."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        try:
            self.file, self.path, self.prefix = safe_open(path, framework="pt"), path, prefix
            self.names = [key.removeprefix(prefix) for key in self.file.keys() if key.startswith(prefix)]  # noqa: SIM118
        except Exception as error:
            raise CheckpointError(f"{path} is no checkpoint of reglet: {error}") from error

    def __getitem__(self, name: str) -> Tensor:
        x: Tensor = self.file.get_tensor(self.prefix + name)
        return x

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def part(tensors: Mapping[str, Tensor], prefix: str) -> Mapping[str, Tensor]:
    if isinstance(tensors, Stored):
        return Stored(tensors.path, tensors.prefix + prefix)
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def load_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    own = module.state_dict()
    fitted = {key: laid_out_like(value, own[key]) if key in own else value for key, value in tensors.items()}
    module.load_state_dict(fitted)


def _trained(method: nn.Module, optimizer: Optimizer) -> list[tuple[str, nn.Parameter]]:
    """The optimizer's parameters in its own order, with their names."""
    names = {id(p): name for name, p in method.named_parameters()}
    return [(names[id(p)], p) for group in optimizer.param_groups for p in group["params"]]


def _tensor(key: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise CheckpointError(f"{key} is {type(value).__name__}; a checkpoint holds tensors only")
    return value.detach()


def _header(tensors: Mapping[str, Tensor], about: Json) -> bytes:
    """The header of a safetensors file: the length of a JSON, and the JSON with the place of each tensor."""
    places: Json = {"__metadata__": {"about": json.dumps(about)}}
    end = 0
    for name, x in tensors.items():
        start, end = end, end + x.numel() * x.dtype.itemsize
        places[name] = {"dtype": DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [start, end]}
    text = json.dumps(places).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensors: Mapping[str, Tensor], names: Iterable[str]) -> Iterator[Any]:
    for name in names:
        yield whole(tensors[name]).cpu().contiguous().view(-1).view(torch.uint8).numpy()
