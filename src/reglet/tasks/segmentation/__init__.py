"""The class of every pixel."""

from reglet.tasks.segmentation.task import TASK

__all__ = ["TASK"]
