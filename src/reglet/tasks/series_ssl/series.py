"""What the task reads: labelled clips, or windows of machines, as series of one shape."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reglet.tasks.anomaly.machines import Machines, check, cut, sines, standardized, tiles
from reglet.tasks.anomaly.read import read
from reglet.tasks.audio import TASK as AUDIO
from reglet.tasks.audio.config import AudioConfig
from reglet.tasks.series_ssl.config import SeriesSSLConfig


class Series(NamedTuple):
    """y: classes; of machines 1 where a window has an anomalous point.  group: the machine; 0 for clips.

    watched: whether the series are windows of machines, and so scored by distance and not by class.
    """

    train: Float[Tensor, "n c t"]
    test: Float[Tensor, "m c t"]
    y_train: Int64[Tensor, " n"]
    y_test: Int64[Tensor, " m"]
    group_train: Int64[Tensor, " n"]
    group_test: Int64[Tensor, " m"]
    watched: bool


def load(config: SeriesSSLConfig) -> Series:
    """Clips if the file has labels for whole clips, machines otherwise."""
    path = Path(config.data)
    if config.data and not path.exists():
        raise FileNotFoundError(
            f"no data at {path}: expected labelled clips or machines, as task=audio and =anomaly do"
        )
    if config.data and (_has_clips(path) or (path.is_dir() and not (path / "train.csv").exists())):
        clips = AUDIO.load(AudioConfig(data=config.data, fold=config.fold, frames=config.frames, pool=config.pool))
        alone = torch.zeros(len(clips.y), dtype=torch.int64)
        a, b = clips.train, clips.test
        return Series(clips.x[a], clips.x[b], clips.y[a], clips.y[b], alone[a], alone[b], watched=False)
    machines = check(read(path) if config.data else [sines()], window=config.window)
    return windows(standardized(machines), window=config.window)


def windows(machines: Machines, *, window: int) -> Series:
    """Training windows overlap by half, test windows lie side by side."""
    train, test, y, group_train, group_test = [], [], [], [], []
    for i, one in enumerate(machines.series):
        starts = torch.arange(0, len(one.train) - window + 1, max(1, window // 2))
        train.append(cut(one.train, starts, window=window).transpose(1, 2))
        starts = tiles(len(one.test), window=window)
        test.append(cut(one.test, starts, window=window).transpose(1, 2))
        y.append(one.labels[starts[:, None] + torch.arange(window)].any(1).long())
        group_train.append(torch.full((len(train[-1]),), i))
        group_test.append(torch.full((len(test[-1]),), i))
    if not any(0 < int(part.sum()) < len(part) for part in y):
        raise ValueError(f"no machine has windows of {window} points with anomalies and windows without")
    all_normal = torch.zeros(sum(map(len, train)), dtype=torch.int64)
    return Series(
        torch.cat(train).contiguous(),
        torch.cat(test).contiguous(),
        all_normal,
        torch.cat(y),
        torch.cat(group_train),
        torch.cat(group_test),
        watched=True,
    )


def _has_clips(path: Path) -> bool:
    if path.suffix != ".npz":
        return False
    with np.load(path, allow_pickle=False) as archive:
        return bool({"features", "images"} & set(archive.files))
