"""What the few-shot task is told."""

import math
from dataclasses import dataclass

from reglet.engine.settings import option
from reglet.tasks.config import TaskConfig
from reglet.tasks.few_shot.data import NEEDED

MODELS = ("tip-adapter", "tip-adapter-f", "meta-adapter")
FREE_OF_TRAINING = MODELS[0]
# Cosines of an image with texts differ by hundredths, those with means of images by tenths: at CLIP's scale the latter
# would leave nothing to the adapter.
CLIP, MEANS = 100.0, 10.0


@dataclass(frozen=True, kw_only=True)
class FewShotConfig(TaskConfig):
    data: str = option(
        "", f"a .npz with {', '.join(NEEDED)} and, where known, class_features and train_views; nothing: digits' pixels"
    )
    model: str = option("tip-adapter-f", ", ".join(MODELS), *MODELS)
    shots: int = option(16, "training features of each class; the seed chooses them")
    alpha: float = option(1.0, "weight of Tip-Adapter's cache beside the class embeddings")
    beta: float = option(5.5, "how fast the cache's weight falls with distance")
    scale: float = option(
        0.0, f"factor of the cosines to class embeddings; 0: {CLIP:g} as CLIP if they are given, else {MEANS:g}"
    )
    heads: int = option(1, "heads of Meta-Adapter's attention")
    steps: int = option(100, "optimizer steps; 0: epochs decide")
    lr: float = option(1e-3, "largest learning rate, as it is: not scaled by the batch")
    batch: int = option(256, "shots per step; Meta-Adapter takes all of them, in episodes")
    episodes: int = option(
        1, "episodes of Meta-Adapter per step, a multiple of the devices; each orders the shots anew"
    )
    out: str = option("runs/few-shot", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model not in MODELS:
            raise ValueError(f"model is one of {', '.join(MODELS)}; got {self.model!r}")
        for key in ("alpha", "beta", "scale"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"{key} cannot be negative, got {getattr(self, key)}")
        for key in ("shots", "heads", "episodes"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.sim and self.model == FREE_OF_TRAINING:
            raise ValueError(f"{self.model} has nothing to train, so SIM has nothing to act on: try {self.model}-f")
