"""What the task is told."""

from dataclasses import dataclass

from reglet import check, schedules
from reglet.engine.attachments import ONE_PLACE
from reglet.engine.settings import option
from reglet.tasks.config import TaskConfig
from reglet.views.series import SeriesView

LOSSES = ("visreg", "smi", "none", "random")
NO_REGULARIZER = ("none", "random")
OBJECTIVES = ("views", "predict")


@dataclass(frozen=True, kw_only=True)
class SeriesSSLConfig(TaskConfig):
    data: str = option("", "labelled clips as for task=audio, or machines as for task=anomaly; nothing: made sines")
    model: str = option("conv1d", "the network", "conv1d")
    objective: str = option("views", "embed two views alike, or predict the next frame's embedding", *OBJECTIVES)
    loss: str = option(
        "visreg",
        "visreg, smi, none (invariance or prediction alone) or random (no training); to predict also sigreg, swd, ... "
        "(see reglet list attach)",
    )
    lam: float = option(0.6, "share of the regularizer in visreg, against invariance")
    weight: str = option(
        "", "to predict: weight of the regularizer, or a schedule; nothing: 0.1 for sigreg, otherwise 1"
    )
    detach: bool = option(False, "to predict: no gradient through what is predicted")
    frame: int = option(8, "to predict: points of a series that are one frame")
    together: bool = option(
        True, "to predict: regularize all moments as one batch; false: each moment alone, as in LeWM"
    )
    dropout: float = option(0.1, "to predict: dropout of the predictor")
    slices: int = option(256, "directions of visreg and sigreg")
    batch: int = option(128, "series per step")
    lr: float = option(2e-3, "learning rate, after a short warm-up and before a cosine")
    window: int = option(64, "points of a machine that are one series")
    fold: int = option(0, "for clips with folds: the fold to test; 0: by their split")
    frames: int = option(0, "clips are cut or padded with silence to so many frames; 0: to the longest")
    pool: int = option(1, "for clips: average so many neighbouring bands and frames")
    crop: float = option(0.6, "views: smallest share of a series that a crop keeps")
    gain: float = option(1.3, "views: largest factor of the values")
    jitter: float = option(0.3, "views: largest deviation of the noise; the series have 1")
    time_mask: float = option(0.2, "views: largest share of the time without values")
    band_mask: float = option(0.2, "views: largest share of the channels without values")
    neighbours: int = option(
        5, "for machines: score of a test window: mean distance to so many nearest training windows"
    )
    out: str = option("runs/series-ssl", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        losses = LOSSES if self.objective == "views" else (*ONE_PLACE, *NO_REGULARIZER)
        for key, allowed in (("model", ("conv1d",)), ("objective", OBJECTIVES), ("loss", losses)):
            if getattr(self, key) not in allowed:
                also = f" with objective={self.objective}" if key == "loss" else ""
                raise ValueError(f"{key}{also} is one of {', '.join(allowed)}; got {getattr(self, key)!r}")
        leasts = (("window", 8), ("neighbours", 1), ("pool", 1), ("slices", 1), ("batch", 2), ("frame", 2))
        for key, least in leasts:
            if getattr(self, key) < least:
                raise ValueError(f"{key} must be at least {least}, got {getattr(self, key)}")
        check.probability(dropout=self.dropout)
        if not 0 <= self.lam <= 1:
            raise ValueError(f"lam is a share between 0 and 1, got {self.lam}")
        if self.loss == "random" and self.sim:
            raise ValueError("loss=random trains nothing, so there is nothing for SIM to regularize")
        if self.weight:
            schedules.parse(self.weight)
        self.view()

    def view(self) -> SeriesView:
        """Both views are drawn from this; it checks its own numbers."""
        return SeriesView(
            crop=(self.crop, 1.0), gain=self.gain, sigma=self.jitter, time=self.time_mask, band=self.band_mask
        )
