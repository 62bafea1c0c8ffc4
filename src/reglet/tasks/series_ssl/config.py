"""What the task is told."""

from dataclasses import dataclass

from reglet.engine.settings import option
from reglet.tasks.config import TaskConfig
from reglet.views.series import SeriesView

LOSSES = ("visreg", "smi", "none", "random")


@dataclass(frozen=True, kw_only=True)
class SeriesSSLConfig(TaskConfig):
    data: str = option("", "labelled clips as of task=audio, or machines as of task=anomaly; nothing: made sines")
    model: str = option("conv1d", "the network", "conv1d")
    loss: str = option("visreg", "visreg, smi, none: invariance alone, or random: no training", *LOSSES)
    lam: float = option(0.6, "share of the regularizer in visreg, against invariance")
    slices: int = option(256, "directions of visreg")
    batch: int = option(128, "series per step")
    lr: float = option(2e-3, "learning rate, after a short warm-up and before a cosine")
    window: int = option(64, "points of a machine that are one series")
    fold: int = option(0, "of clips with folds: the one that is tested; 0: by their split")
    frames: int = option(0, "clips are cut or end in silence, to so many frames; 0: as the longest")
    pool: int = option(1, "of clips: average so many neighbouring bands and frames")
    crop: float = option(0.6, "views: smallest share of a series that a crop keeps")
    gain: float = option(1.3, "views: largest factor of the values")
    jitter: float = option(0.3, "views: largest deviation of the noise, the series having 1")
    time_mask: float = option(0.2, "views: largest share of the time without values")
    band_mask: float = option(0.2, "views: largest share of the channels without values")
    neighbours: int = option(5, "of machines: training windows whose mean distance is the score of a test window")
    out: str = option("runs/series-ssl", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, allowed in (("model", ("conv1d",)), ("loss", LOSSES)):
            if getattr(self, key) not in allowed:
                raise ValueError(f"{key} is one of {', '.join(allowed)}; got {getattr(self, key)!r}")
        for key, least in (("window", 8), ("neighbours", 1), ("pool", 1), ("slices", 1), ("batch", 2)):
            if getattr(self, key) < least:
                raise ValueError(f"{key} must be at least {least}, got {getattr(self, key)}")
        if not 0 <= self.lam <= 1:
            raise ValueError(f"lam is a share between 0 and 1, got {self.lam}")
        if self.loss == "random" and self.sim:
            raise ValueError("loss=random trains nothing, so there is nothing for SIM to regularize")
        self.view()

    def view(self) -> SeriesView:
        """Both views are drawn from this; it checks its own numbers."""
        return SeriesView(
            crop=(self.crop, 1.0), gain=self.gain, sigma=self.jitter, time=self.time_mask, band=self.band_mask
        )
