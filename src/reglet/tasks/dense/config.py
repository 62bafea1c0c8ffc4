"""What dense transfer is told."""

from dataclasses import dataclass

from reglet.engine.settings import option
from reglet.tasks.config import TaskConfig


@dataclass(frozen=True, kw_only=True)
class DenseConfig(TaskConfig):
    data: str = option("", "a .npz, or a folder with images/ and masks/, as task=segmentation; nothing: ink of digits")
    encoder: str = option("", "directory of the run whose encoder is read; nothing: `model` with random weights")
    model: str = option("vit_mini", "the network, if no encoder is given (see reglet list models)")
    layers: str = option("", "blocks that are read together, such as blocks.1,blocks.3; nothing: the last tokens")
    size: int = option(32, "side of the square that images are resized to, in pixels")
    batch: int = option(16, "images per step")
    lr: float = option(2e-3, "largest learning rate, as it is: not scaled by the batch")
    threshold: int = option(-1, "pixels of a mask above it are foreground; -1: they are class numbers, or 0 and 255")
    images: int = option(0, "training images to use, the first so many; 0: all")
    out: str = option("runs/dense", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1 or self.images < 0:
            raise ValueError(f"size is at least 1 and images at least 0, got {self.size} and {self.images}")
        if self.batch < 2:
            raise ValueError(f"batch norm wants 2 images a step or more, got batch={self.batch}")
