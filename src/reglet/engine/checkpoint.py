"""One file per checkpoint: tensors as safetensors, everything else as JSON in its header.  Nothing is unpickled.

It is written beside its place, flushed to the disk and renamed, so a run that is killed or finds the disk full keeps
the checkpoint it had.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from reglet.engine.shard import laid_out_like, whole

Json = dict[str, Any]
Optimizer = torch.optim.Optimizer


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read."""


def write(path: Path, tensors: Mapping[str, Tensor], about: Json) -> None:
    """Atomically: at `path` there is the old file or the new one, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    try:
        save_file(_plain(tensors), fresh, metadata={"about": json.dumps(about)})
        with fresh.open("rb+") as file:  # Windows flushes only what is open for writing
            os.fsync(file.fileno())
        fresh.chmod(0o644)  # safetensors keeps its files to the user alone
        fresh.replace(path)
    except Exception as error:  # safetensors has an exception of its own for a full disk
        fresh.unlink(missing_ok=True)
        kept = "the one before it is untouched" if path.exists() else "there was none before it"
        raise CheckpointError(f"could not write {path}: {error} ({kept})") from error
    with suppress(OSError):  # Windows opens no directories, and some file systems flush none
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # or the rename itself could be lost with the power
        finally:
            os.close(folder)


def read(path: Path) -> tuple[dict[str, Tensor], Json]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, json.loads((file.metadata() or {})["about"])  # noqa: SIM118
    except Exception as error:
        raise CheckpointError(f"{path} is no checkpoint of reglet: {error}") from error


def read_about(path: Path) -> Json:
    """The JSON alone."""
    try:
        with safe_open(path, framework="pt") as file:
            about: Json = json.loads((file.metadata() or {})["about"])
            return about
    except Exception as error:
        raise CheckpointError(f"{path} is no checkpoint of reglet: {error}") from error


def collect(method: nn.Module, optimizer: Optimizer, ema: nn.Module | None = None) -> dict[str, Tensor]:
    """Every tensor of a run by name.  On sharded weights every rank must call it."""
    tensors = {f"method.{key}": _tensor(key, value) for key, value in method.state_dict().items()}
    for name, p in _trained(method, optimizer):
        for key, value in optimizer.state.get(p, {}).items():
            tensors[f"optimizer.{name}.{key}"] = whole(_tensor(key, value))
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


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
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
    return whole(value)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, and none a view of another: what safetensors asks for."""
    seen: set[int] = set()
    plain = {}
    for key, value in tensors.items():
        value = value.detach().cpu().contiguous()
        plain[key] = value.clone() if value.data_ptr() in seen else value
        seen.add(plain[key].data_ptr())
    return plain
