"""What the segmentation task is told."""

from dataclasses import dataclass

from reglet.engine.settings import option
from reglet.networks.segmentation import HEADS
from reglet.tasks.config import TaskConfig


@dataclass(frozen=True, kw_only=True)
class SegmentationConfig(TaskConfig):
    data: str = option("", "a .npz, or a folder with images/ and masks/; nothing: curves that are drawn on the fly")
    model: str = option("fcn", f"head of the U-Net: {', '.join(HEADS)}", *HEADS)
    batch: int = option(8, "crops per step")
    lr: float = option(5e-3, "learning rate, after a short warm-up and before a cosine")
    crop: int = option(64, "side of the squares that the network is trained and tested on, in pixels")
    width: int = option(16, "channels of the first stage, 64 in U-Net; each later stage has twice as many")
    stages: int = option(4, "stages, 5 in U-Net, each at half the resolution of the one before")
    decoder: bool = option(True, "use U-Net's second half before the head; false: the head reads the last stage")
    dice: float = option(1.0, "weight of the soft Dice loss beside cross-entropy")
    threshold: int = option(-1, "pixels of a mask above it are foreground; -1: they are class numbers, or 0 and 255")
    train_on: str = option("", "domains to train on, with commas between them; nothing: all")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model not in HEADS:
            raise ValueError(f"model is one of {', '.join(HEADS)}; got {self.model!r}")
        if min(self.width, self.stages) < 1:
            raise ValueError(f"width and stages must be at least 1, got {self.width} and {self.stages}")
        if self.batch < 2:
            raise ValueError(f"batch norm wants 2 crops a step or more, got batch={self.batch}")
        multiple = 1 << self.stages - 1
        if self.crop < 1 or self.crop % multiple:
            raise ValueError(f"with {self.stages} stages crop is a multiple of {multiple}, got {self.crop}")
        if self.dice < 0:
            raise ValueError(f"dice cannot be negative, got {self.dice}")
        if not -1 <= self.threshold < 255:
            raise ValueError(f"threshold is between 0 and 254, or -1 for none; got {self.threshold}")
