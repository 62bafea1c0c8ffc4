"""What every task is told: everything that a run by names is, and a few words more.  A task adds to it, and changes the
defaults."""

from dataclasses import dataclass

from reglet.engine.config import Named
from reglet.engine.settings import option

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Named):
    data: str = option("", "where the data are; nothing: a small set that is made on the fly")
    sim: str = option("", f"blocks to regularize by rhoSIM: names or globs with commas between them, {AUTO}, or none")
    paired: bool = option(False, "train every seed without rhoSIM and other attachments too, and say what they changed")
    steps: int = option(300, "optimizer steps; 0: epochs decide")
    batch: int = option(32, "samples per step, over all devices")
    weight_decay: float = option(1e-2, "of matrices and kernels; norms, biases and other vectors have none")
    clip: float = option(1.0, "largest norm of the gradient, without the heads of block losses; 0: none")
    save_every: int = option(200, "steps between checkpoints; there is always one at the end")
    seeds: int = option(1, "seeds seed, seed + 1, ...: weights and batches")
    jobs: int = option(1, "runs at a time, each in a process of one thread")
    out: str = option("runs/task", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("seeds", "jobs"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.paired and not self.sim and not self.attached():
            raise ValueError(
                f"paired=true compares with rhoSIM and without: say where it is attached, such as sim={AUTO}; or "
                "attach.0.where= and attach.0.loss="
            )
        if self.init_from:
            raise ValueError("init_from= is for reglet pretrain and reglet train: a task starts from its own weights")
        if self.jobs > 1 and self.devices * self.nodes > 1:
            raise ValueError(f"jobs={self.jobs} are processes of one device each; got devices={self.devices}")

    def blocks(self, own: list[str]) -> list[str]:
        """Where rhoSIM is attached; `own` is what the network suggests."""
        return own if self.sim == AUTO else [name.strip() for name in self.sim.split(",") if name.strip()]
