"""What is watched: a part without anomalies to learn from, a labelled part to be tested on, and windows of both."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor


class Machine(NamedTuple):
    """One series of c channels.  Nothing is assumed about the time between `train` and `test`."""

    name: str
    train: Float[Tensor, "t c"]
    test: Float[Tensor, "u c"]
    labels: Bool[Tensor, " u"]

    @property
    def mixed(self) -> bool:
        """Whether the test part has normal and anomalous points."""
        return bool(self.labels.any()) and not bool(self.labels.all())


class Machines(NamedTuple):
    """Machines of one kind, that is with the same channels: one network is trained on all of them."""

    series: tuple[Machine, ...]

    @property
    def channels(self) -> int:
        return self.series[0].train.shape[1]


def machine(name: str, train: NDArray[Any], test: NDArray[Any], labels: NDArray[Any]) -> Machine:
    """Checked for what can be said of one machine alone."""
    parts = {"train": _series(name, "train", train), "test": _series(name, "test", test)}
    if (a := parts["train"].shape[1]) != (b := parts["test"].shape[1]):
        raise ValueError(f"{name}: train has {a} channels and test has {b}")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.shape != (len(test),):
        raise ValueError(f"{name}: test has {len(test)} points, so labels is ({len(test)},); got {labels.shape}")
    if labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
        raise ValueError(f"{name}: labels are 1 where a point is anomalous and 0 elsewhere; got others")
    return Machine(name, parts["train"], parts["test"], torch.from_numpy(labels.astype(bool)))


def check(series: Sequence[Machine], *, window: int) -> Machines:
    """Checked for what makes training or scores meaningless."""
    first = series[0]
    for one in series:
        if one.train.shape[1] != first.train.shape[1]:
            raise ValueError(
                f"{first.name} has {first.train.shape[1]} channels and {one.name} has {one.train.shape[1]}: "
                "one network is trained on all, so they must have the same"
            )
        for part, points in (("train", one.train), ("test", one.test)):
            if len(points) < window:
                raise ValueError(f"{one.name}: {part} has {len(points)} points, fewer than window={window}")
    if not any(one.mixed for one in series):
        found = "all" if bool(first.labels.any()) else "none"
        raise ValueError(
            f"{found} of the test points of {first.name} are anomalous, and no other machine has both kinds: "
            "scores need normal and anomalous points"
        )
    if bool((torch.cat([one.train for one in series]) == first.train[0]).all()):
        raise ValueError(f"no channel of the training part of {first.name} ever moves: there is nothing to learn")
    return Machines(tuple(series))


def standardized(machines: Machines) -> Machines:
    """Each channel with mean 0 and deviation 1 over all training parts.

    A channel that stands still there is only shifted to 0, so that it counts in its own unit if it moves later.
    """
    train = torch.cat([one.train for one in machines.series]).double()
    mean, deviation = train.mean(0), train.std(0, correction=0)
    scale = torch.where(train.amax(0) == train.amin(0), 1.0, deviation)

    def scaled(x: Tensor) -> Tensor:
        return ((x.double() - mean) / scale).float()

    return Machines(tuple(one._replace(train=scaled(one.train), test=scaled(one.test)) for one in machines.series))


def _series(name: str, part: str, points: NDArray[Any]) -> Tensor:
    if points.dtype.kind not in "biuf":
        raise ValueError(f"{name}: {part} must be numbers, got {points.dtype}")
    if points.ndim != 2 or not points.size:
        raise ValueError(f"{name}: {part} is (time, channels); got shape {points.shape}")
    values = points.astype(np.float32)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, channel = bad[0]
        raise ValueError(
            f"{name}: {part} has {values[row, channel]} at time {row} in channel {channel}, and {len(bad) - 1} more "
            "that are not finite: fill them in or drop them first"
        )
    return torch.from_numpy(np.ascontiguousarray(values))


AT_ONCE = 128  # windows that are scored together


def training_starts(lengths: Sequence[int], *, window: int) -> Int[Tensor, " w"]:
    """Where a window of series that stand one after another may begin, so that none reaches into the next series."""
    parts, begin = [], 0
    for length in lengths:
        parts.append(begin + torch.arange(length - window + 1))
        begin += length
    return torch.cat(parts)


def tiles(length: int, *, window: int) -> Int[Tensor, " w"]:
    """Windows side by side; the last one ends with the series, over some of the points of the one before."""
    return torch.arange(0, length, window).clamp(max=length - window)


def cut(points: Float[Tensor, "t c"], starts: Int[Tensor, " w"], *, window: int) -> Float[Tensor, "w window c"]:
    return points[starts[:, None] + torch.arange(window)]


@torch.no_grad()
def point_errors(
    reconstruct: Callable[[Tensor], Tensor], points: Float[Tensor, "t c"], *, window: int
) -> Float[Tensor, " t"]:
    """The mean over channels of the squared error with which each point is reconstructed, in its tile.

    A point in two tiles is scored in the first.
    """
    windows = cut(points, tiles(len(points), window=window), window=window)
    errors = torch.cat([(reconstruct(part) - part).square().mean(2) for part in windows.split(AT_ONCE)])
    rest = len(points) - window * (len(errors) - 1)
    return torch.cat([errors[:-1].flatten(), errors[-1, window - rest :]])


CHANNELS, POINTS = 6, 3000
SEGMENTS = 6  # anomalies in the test part


def sines(*, seed: int = 0) -> Machine:
    """Six channels that mix two sines, of 20 and 50 points, and noise.

    In the test part six segments of 10 to 40 points are anomalous: in turn half of the channels are shifted, run three
    times as fast, or are noise.
    """
    g = torch.Generator().manual_seed(seed)
    mix, phase = torch.rand(2, 2, CHANNELS, generator=g)
    t = torch.arange(2 * POINTS)
    noise = 0.1 * torch.randn(2 * POINTS, CHANNELS, generator=g)
    points = _waves(t, mix, phase) + noise
    train, test = points[:POINTS], points[POINTS:]
    labels = torch.zeros(POINTS, dtype=torch.bool)
    for k in range(SEGMENTS):
        length = int(torch.randint(10, 41, (), generator=g))
        begin = k * POINTS // SEGMENTS + int(torch.randint(POINTS // SEGMENTS - length, (), generator=g))
        part = slice(begin, begin + length)
        broken = torch.randperm(CHANNELS, generator=g)[: CHANNELS // 2]
        kinds = (
            test[part] + 2.0,
            _waves(3 * t[POINTS:][part], mix, phase) + noise[POINTS:][part],
            torch.randn(length, CHANNELS, generator=g),
        )
        test[part, broken] = kinds[k % 3][:, broken]
        labels[part] = True
    return Machine("sines", train, test, labels)


def _waves(t: Tensor, mix: Float[Tensor, "2 c"], phase: Float[Tensor, "2 c"]) -> Float[Tensor, "t c"]:
    angles = 2 * torch.pi * (t[:, None, None] / torch.tensor([20.0, 50.0])[:, None] + phase)
    return (mix * angles.sin()).sum(1)
