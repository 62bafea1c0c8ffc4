"""What every task is told.  A task's own configuration adds to it, and changes the defaults."""

import math
from dataclasses import dataclass

from reglet.engine.settings import option

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    data: str = option("", "where the data are; nothing: a small set that is made on the fly")
    model: str = option("", "the network")
    sim: str = option("", f"blocks to regularize by SIM: names or globs with commas between them, {AUTO}, or none")
    weight: float = option(5e-3, "of SIM beside the task's own loss")
    rho: float = option(0.2, "ratio of tokens that SIM looks at")
    paired: bool = option(False, "train every seed without SIM too, and say what it changed")
    steps: int = option(300, "optimizer steps")
    batch: int = option(32, "samples per step")
    lr: float = option(1e-3, "learning rate, after a short warm-up and before a cosine")
    weight_decay: float = option(1e-2, "of AdamW")
    seeds: int = option(1, "seeds 0, 1, ...: weights and batches")
    out: str = option("runs/task", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        for key in ("steps", "batch", "seeds"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if self.weight < 0 or self.weight_decay < 0:
            raise ValueError(
                f"weights cannot be negative, got weight={self.weight} and weight_decay={self.weight_decay}"
            )
        if not 0 < self.rho <= 1:
            raise ValueError(f"rho is a ratio in (0, 1], got {self.rho}")
        if self.paired and not self.sim:
            raise ValueError(f"paired=true compares with SIM and without: say where it is attached, such as sim={AUTO}")
