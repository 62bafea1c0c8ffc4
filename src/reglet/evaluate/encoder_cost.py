"""What an encoder costs to use: parameters, FLOPs of an image, and time of an image."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from reglet.data import Images
from reglet.evaluate.compute import Compute
from reglet.evaluate.extract import CPU

ROUNDS, BATCH = 5, 32


@dataclass(frozen=True)
class EncoderCost:
    """flops: of the forward pass of one image; a multiply and an add count as two.  milliseconds: per image in batches
    of `batch`, without reading the image; the median of five rounds after a warm-up.

    >>> EncoderCost(25_600_000, 8_200_000_000, 2.0, 32).images_per_second
    500.0
    """

    parameters: int
    flops: int
    milliseconds: float
    batch: int

    @property
    def images_per_second(self) -> float:
        return 1000 / self.milliseconds


@torch.no_grad()
def encoder_cost(
    net: nn.Module,
    images: Images,
    preprocess: Callable[[Tensor], Tensor],
    *,
    compute: Compute = CPU,
) -> EncoderCost:
    """Measured on the first device of `compute` and in its precision.  Parameters and FLOPs do not depend on these."""
    parameters = sum(p.numel() for p in net.parameters())
    flops = forward_flops(net.eval(), preprocess(images.batch(torch.zeros(1, dtype=torch.int64))))
    placed = compute.copies(net)[0]
    index = torch.arange(min(BATCH, len(images)))
    x = compute.cast(preprocess(compute.take(images.batch(index))))
    seconds = []
    for _ in range(1 + ROUNDS):
        start = time.perf_counter()
        with compute.mixed():
            y = placed(x)
        y.sum().item()  # waits for the device
        seconds.append(time.perf_counter() - start)
    return EncoderCost(parameters, flops, 1000 * statistics.median(seconds[1:]) / len(x), len(x))


@torch.no_grad()
def forward_flops(net: nn.Module, x: Tensor) -> int:
    """Of `net` on x, as torch counts them."""
    device = next((p.device for p in net.parameters()), x.device)
    with FlopCounterMode(display=False) as counter:
        net(x.to(device))
    return int(counter.get_total_flops())
