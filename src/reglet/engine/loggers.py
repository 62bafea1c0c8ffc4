"""TensorBoard and Weights & Biases, for those who look there; metrics.jsonl is written in any case."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Logger(Protocol):
    def log(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    def __init__(self, out: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("loggers=tensorboard needs it: pip install 'reglet[tensorboard]'") from error
        self.writer = SummaryWriter(str(out / "tensorboard"))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)

    def close(self) -> None:
        self.writer.close()


class WandB:
    """Offline unless WANDB_MODE says otherwise: a training run should not wait for a network."""

    def __init__(self, out: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise ImportError("loggers=wandb needs it: pip install 'reglet[wandb]'") from error
        mode = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(dir=str(out), name=out.name, config=dict(config), mode=mode, resume="allow")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        self.run.finish()


def build_loggers(names: str, out: Path, config: Mapping[str, Any]) -> list[Logger]:
    known: dict[str, Callable[[], Logger]] = {
        "tensorboard": lambda: TensorBoard(out),
        "wandb": lambda: WandB(out, config),
    }
    return [known[name]() for name in filter(None, names.split(","))]
