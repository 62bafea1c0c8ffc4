"""Images a second through a two-view policy, beside torchvision's transforms image by image.

`python -m benchmarks.views`.  The peer is what a worker of a DataLoader runs: one process, one thread, uint8 tensors
in, the same policy (SMI's: crop, flip, jitter, grey, blur) and normalisation, twice for each image, then stacked.  Both
run on one thread, and decoding is left out of both.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.rows import Row, at_least, lines
from benchmarks.timing import Clock, Step, interleave
from reglet import views

CASES = ((32, 256, 8.0), (96, 128, 3.0))  # pixels, batch, times faster at least

_kept: list[torch.library.Library] = []  # a Library takes its definitions with it when it is collected


def run(*, budget: float = 60.0, clock: Clock = time.perf_counter) -> Iterator[Row]:
    """`budget`: seconds at most for a case, once each contestant ran seven times."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for size, batch, target in CASES:
            yield from measure(size, batch, target, budget=budget, clock=clock)
    finally:
        torch.set_num_threads(threads)


def measure(size: int, batch: int, target: float, *, budget: float, clock: Clock) -> Iterator[Row]:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    images = torch.randint(256, (batch, 3, size, size), dtype=torch.uint8, generator=generator)
    images = smooth(images)
    steps: dict[str, Step] = {"torchvision": torchvision_step(images), "reglet": reglet_step(images, generator)}
    rounds = interleave(steps, slot=0.0, budget=budget, clock=clock)
    where = "two views", f"{size} px, batch {batch}"
    ratio = rounds.ratio("torchvision", "reglet")
    faster = partial(at_least, *where, "times faster than", against="torchvision")
    yield faster(value=ratio.median, target=target, low=ratio.low, high=ratio.high)
    for name in steps:
        seconds = rounds.median(name)
        rate = partial(Row, *where, "images/s", against=name)
        yield rate(value=batch / seconds.median, low=batch / seconds.high, high=batch / seconds.low)


def smooth(images: Tensor) -> Tensor:
    """Noise has no neighbours that resemble each other; photographs do."""
    return torch.nn.functional.avg_pool2d(images.float(), 5, stride=1, padding=2).sub_(128).mul_(4).add_(128).byte()


def reglet_step(images: Tensor, generator: torch.Generator) -> Step:
    policy = views.policy("smi", size=images.shape[-1])
    return lambda: policy.apply(images, policy.draw(len(images), generator))


def torchvision_step(images: Tensor) -> Step:
    """SMI's policy in the peer's words; stacked, as a DataLoader collates."""
    transform = torchvision_policy(images.shape[-1])
    return lambda: [torch.stack([transform(image) for image in images]) for _ in range(2)]


def torchvision_policy(size: int) -> Callable[[Tensor], Tensor]:
    v2 = torchvision_v2()
    normal = views.Normalize()
    composed: Callable[[Tensor], Tensor] = v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(0.2, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            v2.RandomGrayscale(p=0.2),
            v2.RandomApply([v2.GaussianBlur(size // 10 | 1, sigma=(0.1, 2.0))], p=0.5),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(normal.mean, normal.std),
        ]
    )
    return composed


def torchvision_v2() -> Any:
    """torchvision's transforms; where its compiled operators do not fit this torch, their names are declared first."""
    try:
        from torchvision.transforms import v2
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        from torchvision.transforms import v2
    return v2


if __name__ == "__main__":
    for line in lines(run()):
        print(line, flush=True)
