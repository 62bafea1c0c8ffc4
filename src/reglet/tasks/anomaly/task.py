"""Train a reconstructor on the training parts, score every point by its error, and hold the scores against labels.

The protocol is that of Time-Series-Library (thuml), which rhoSIM's table 9 follows, except: windows do not reach from
one machine into the next; the points after the last whole window are scored too; training points enter the threshold
once, and not once for each window that has them; and there is no early stopping.
"""

from functools import partial
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from reglet.engine.feed import TensorFeed
from reglet.engine.monitor import AtEnd, Trained
from reglet.method import Batch
from reglet.probes.metrics import multilabel_auroc
from reglet.tasks.anomaly.config import NETWORKS, AnomalyConfig, Network
from reglet.tasks.anomaly.detection import adjusted, detection, threshold
from reglet.tasks.anomaly.machines import Machines, check, cut, point_errors, sines, standardized, training_starts
from reglet.tasks.anomaly.read import read
from reglet.tasks.batches import digest, shuffled
from reglet.tasks.predict import Predict
from reglet.tasks.task import Setup


class Anomaly:
    """find the points of a series that a network trained on normal ones cannot reconstruct"""

    config = AnomalyConfig
    main = "auroc"

    def load(self, config: AnomalyConfig) -> Machines:
        """Standardized by the training parts."""
        series = read(Path(config.data)) if config.data else [sines()]
        return standardized(check(series, window=config.window))

    def setup(self, config: AnomalyConfig, data: Machines) -> Setup:
        points = torch.cat([one.train for one in data.series])
        starts = training_starts([len(one.train) for one in data.series], window=config.window)
        network = build(config, channels=data.channels)

        def batch(index: Tensor, _: torch.Generator) -> Batch:
            return Batch([cut(points, starts[index], window=config.window)])

        return Setup(
            Predict(network, reconstruction, term="reconstruction"),
            TensorFeed(
                batch, shuffled(len(starts), config), name=config.data or "sines", fingerprint=digest(points, starts)
            ),
            [AtEnd(partial(scores, data=data, window=config.window, ratio=config.ratio))],
            inside="network",
            sim_blocks=list(network.sim_blocks),
        )


def reconstruction(y: Tensor, batch: Batch) -> Tensor:
    return mse_loss(y, batch.views[0])


def build(config: AnomalyConfig, *, channels: int) -> Network:
    kind = NETWORKS[config.model]
    if config.width:
        return kind(channels=channels, length=config.window, width=config.width)
    return kind(channels=channels, length=config.window)


def scores(model: Trained, *, data: Machines, window: int, ratio: float) -> dict[str, float]:
    """One threshold for all machines; segments are those of each."""

    def reconstruct(x: Tensor) -> Tensor:
        return model.call(lambda method, x: method.encode(x), x).cpu()

    train = torch.cat([point_errors(reconstruct, one.train, window=window) for one in data.series])
    test = [point_errors(reconstruct, one.test, window=window) for one in data.series]
    return judge(train, test, data, ratio=ratio)


def judge(train: Tensor, test: list[Tensor], data: Machines, *, ratio: float) -> dict[str, float]:
    """The scores of a detection, from a score of each training point and of each test point of each machine.

    auroc is that of all points together, so it also compares machines: where anomalies are in those that are easy to
    reconstruct it is below one half though points are ranked well in each.  auroc_within is the mean over machines.
    f1_area is the area under F1 over the share of a segment that must be found, from 0 (adjusted_f1) to 1 (f1): the
    measure that Kim et al. (AAAI 2022) propose, because random scores win by adjusted_f1.
    """
    limit = threshold(train, torch.cat(test), ratio=ratio)
    labels = torch.cat([one.labels for one in data.series])
    found = [(scores > limit, one.labels) for scores, one in zip(test, data.series, strict=True)]
    curve = [detection(torch.cat([adjusted(*pair, above=k / 10) for pair in found]), labels) for k in range(11)]
    after, before = curve[0], curve[-1]
    return {
        "auroc": multilabel_auroc(torch.cat(test)[:, None], labels[:, None]),
        "auroc_within": within(test, data),
        **before._asdict(),
        **{f"adjusted_{name}": value for name, value in after._asdict().items()},
        "f1_area": float(torch.trapezoid(torch.tensor([one.f1 for one in curve], dtype=torch.float64), dx=0.1)),
    }


def within(test: list[Tensor], data: Machines) -> float:
    """The mean of the AUROC of each machine that has normal and anomalous points."""
    pairs = [(s, one.labels) for s, one in zip(test, data.series, strict=True) if one.mixed]
    return mean(multilabel_auroc(scores[:, None], labels[:, None]) for scores, labels in pairs)


TASK = Anomaly()
