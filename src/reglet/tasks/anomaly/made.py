"""A small machine that is made on the fly: sines, and where they break."""

import torch
from jaxtyping import Float
from torch import Tensor

from reglet.tasks.anomaly.machines import Machine

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
