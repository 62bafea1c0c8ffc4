"""What the task is told."""

from collections.abc import Callable
from dataclasses import dataclass

from reglet.engine.settings import option
from reglet.networks.series import (
    ITransformer,
    LightTS,
    MambaTS,
    TimesNet,
    itransformer_small,
    lightts_small,
    mambats_small,
    timesnet_small,
)
from reglet.tasks.config import TaskConfig

Network = ITransformer | LightTS | MambaTS | TimesNet
NETWORKS: dict[str, Callable[..., Network]] = {
    "itransformer-small": itransformer_small,
    "lightts-small": lightts_small,
    "timesnet-small": timesnet_small,
    "mambats-small": mambats_small,
    "itransformer": ITransformer,
    "lightts": LightTS,
    "timesnet": TimesNet,
    "mambats": MambaTS,
}
LEAST = 8  # points of a window


@dataclass(frozen=True, kw_only=True)
class AnomalyConfig(TaskConfig):
    data: str = option("", "a .npz or a folder with train, test and labels; nothing: sines with injected anomalies")
    model: str = option("itransformer-small", "the network, of the published size or small", *NETWORKS)
    window: int = option(100, "points that the network sees at a time")
    width: int = option(0, "features of the network; 0: its own default")
    ratio: float = option(1.0, "per cent of all points (training and test together) that are called anomalous")
    steps: int = option(200, "optimizer steps")
    lr: float = option(3e-3, "learning rate, after a short warm-up and before a cosine")
    out: str = option("runs/anomaly", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model not in NETWORKS:
            raise ValueError(f"model is one of {', '.join(NETWORKS)}; got {self.model!r}")
        if self.window < LEAST:
            raise ValueError(f"a window has at least {LEAST} points, got window={self.window}")
        if self.width < 0:
            raise ValueError(f"width must not be negative, got {self.width}")
        if not 0 < self.ratio < 100:
            raise ValueError(f"ratio is per cent, between 0 and 100, got {self.ratio}")
