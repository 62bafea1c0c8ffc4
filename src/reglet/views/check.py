"""What every operation on a batch of images asks first."""

import torch
from torch import Tensor


def images(x: Tensor, *, channels: tuple[int, ...] | None = None) -> None:
    """(n, c, h, w), not empty, uint8 in 0..255 or floating point in [0, 1]."""
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise ValueError(f"images are (n, c, h, w) and not empty, got shape {tuple(x.shape)}")
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise TypeError(f"images are uint8 in 0..255 or floating point in [0, 1], got {x.dtype}")
    if channels is not None and x.shape[1] not in channels:
        raise ValueError(f"expected {' or '.join(map(str, channels))} channels, got {x.shape[1]}")


def one_each(x: Tensor, **values: Tensor) -> None:
    """One value, or one row of values, for each image."""
    for name, value in values.items():
        if len(value) != len(x):
            raise ValueError(f"{name} was drawn for a batch of {len(value)}, got one of {len(x)}")


def probability(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} is a probability, got {value}")


def interval(name: str, value: tuple[float, float], *, low: float, high: float) -> None:
    """low < a <= b <= high."""
    a, b = value
    if not low < a <= b <= high:
        raise ValueError(f"{name} is a range (a, b) with {low:g} < a <= b <= {high:g}, got {value}")
