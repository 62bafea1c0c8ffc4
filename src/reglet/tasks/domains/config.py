"""What the task is told."""

import math
from dataclasses import dataclass
from typing import ClassVar

from reglet.engine.settings import option
from reglet.tasks.config import TaskConfig
from reglet.tasks.domains.losses import NAMES

RULES = ("training_domain", "leave_one_domain_out", "oracle")


@dataclass(frozen=True, kw_only=True)
class DomainsConfig(TaskConfig):
    rooms: ClassVar[tuple[str, ...]] = (*TaskConfig.rooms, "views")

    data: str = option("digits", "digits, a folder domain/class/, or a .npz with labels and domain")
    model: str = option("convnet", "the network (see reglet list models)")
    loss: str = option("erm", ", ".join(NAMES), *NAMES)
    views: str = option("domains", "augmentation policy; DomainBed's by default, none for the raw image")
    leave_out: str = option("", "the domain to test on; nothing: each in turn")
    selection: str = option("training_domain", "what chooses rate and checkpoint: " + ", ".join(RULES), *RULES)
    rates: str = option("", "several learning rates with commas between them, for the rule to choose from")
    per_domain: int = option(32, "images of each training domain in a batch, which decides `batch`")
    checkpoints: int = option(3, "times that a run is scored, at equal distances")
    size: int = option(0, "side in pixels; 0: that of the images, at most 224")
    seeds: int = option(3, "seeds seed, seed + 1, ...: weights, batches and the 80/20 splits")
    optimizer: str = option("adam", "adam, as DomainBed; adamw, sgd or lars", "adam", "adamw", "sgd", "lars")
    schedule: str = option("constant", "of the learning rate: constant, as DomainBed, cosine or half")
    warmup: float = option(0.0, "share of the steps during which the learning rate rises")
    weight_decay: float = option(0.0, "of matrices and kernels; norms, biases and other vectors have none")
    clip: float = option(0.0, "largest norm of the gradient, without the heads of block losses; 0: none")
    out: str = option("runs/domains", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("per_domain", "checkpoints"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.steps and self.checkpoints > self.steps:
            raise ValueError(f"{self.steps} steps have no {self.checkpoints} checkpoints")
        if self.latent and self.loss != "erm":
            raise ValueError(f"latent={self.latent} takes the place of the loss: leave loss={self.loss} out")
        if not all(0 < rate < math.inf for rate in self.tried):
            raise ValueError(f"learning rates are positive, got rates={self.rates}")

    @property
    def tried(self) -> list[float]:
        """The learning rates that the rule chooses from."""
        try:
            return [float(word) for word in self.rates.split(",")] if self.rates else [self.lr]
        except ValueError:
            raise ValueError(f"rates are numbers with commas between them; got {self.rates!r}") from None
