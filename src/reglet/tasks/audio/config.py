"""What the audio task is told."""

from collections.abc import Callable
from dataclasses import dataclass

from reglet.engine.settings import option
from reglet.networks.audio import (
    TDNN,
    CAMPPlus,
    ERes2Net,
    Res2Net,
    campplus_small,
    eres2net_small,
    res2net_small,
    tdnn_small,
)
from reglet.tasks.config import TaskConfig

NETWORKS: dict[str, Callable[..., TDNN | Res2Net | ERes2Net | CAMPPlus]] = {
    "tdnn-small": tdnn_small,
    "res2net-small": res2net_small,
    "eres2net-small": eres2net_small,
    "campplus-small": campplus_small,
    "tdnn": TDNN,
    "res2net": Res2Net,
    "eres2net": ERes2Net,
    "campplus": CAMPPlus,
}


@dataclass(frozen=True, kw_only=True)
class AudioConfig(TaskConfig):
    data: str = option("", "a .npz of log-mel clips, or a folder class/*.wav; nothing: tones that are made on the fly")
    model: str = option("tdnn-small", "the network, of the published size or small", *NETWORKS)
    lr: float = option(3e-3, "learning rate, after a short warm-up and before a cosine")
    fold: int = option(0, "for a file with folds: the fold to test, the others train; 0: by its split")
    frames: int = option(0, "clips are cut or padded with silence to so many frames; 0: to the longest")
    pool: int = option(1, "average so many neighbouring bands and frames, for speed")
    mels: int = option(40, "bands, for a folder of .wav")
    window: float = option(0.025, "seconds of a frame, for a folder of .wav")
    hop: float = option(0.01, "seconds between frames, for a folder of .wav")
    out: str = option("runs/audio", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model not in NETWORKS:
            raise ValueError(f"model is one of {', '.join(NETWORKS)}; got {self.model!r}")
        for key in ("mels", "pool"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        for key in ("frames", "fold"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} cannot be negative, got {getattr(self, key)}")
        if not 0 < self.hop <= self.window:
            raise ValueError(f"a frame of window={self.window:g} s starts every hop={self.hop:g} s: 0 < hop <= window")
