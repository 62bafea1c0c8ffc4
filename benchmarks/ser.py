"""What SER costs.

FLOPs: MoCo-v3 with SER over MoCo-v3, as torch's counter counts them on the meta device, where nothing is computed.
ViT-S/16 at 224 px, 8 ranks of 256 images as one batch of 2048, of which 24 are in b2, layer 3, [CLS] joining after it;
against the plain network with [CLS] at the input.  Forward, and forward + backward; the mean over draws of the group.
A product of (n, k) and (k, m) counts 2 n k m.  The paper prints 1.008.

Time: a training step of a small ViT (96 wide, 6 deep, 8 x 8 patches, batch 128) with 16 images in b2.
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.rows import Row, at_most, lines
from benchmarks.timing import Clock, Step, interleave
from reglet.backbones.vit import ViT, vit_small
from reglet.method import Batch, Method
from reglet.methods.equivariant import Equivariant
from reglet.methods.equivariant_views import AlignedViews
from reglet.methods.moco import MoCoV3
from reglet.types import total
from reglet.views import policy

BATCH, SHARE, DRAWS = 2048, 24 / 2048, 8
FLOPS, TIME = 1.008, 1.15
SMALL_BATCH, SMALL_SHARE = 128, 0.125


def batch(n: int, *, size: int, share: float, device: str) -> Batch:
    views = AlignedViews(policy("ser", size=size), fraction=share)
    draws = views.draw(n, torch.Generator().manual_seed(0))
    if device == "meta":
        return Batch([torch.empty(n, 3, size, size, device="meta")] * 2, n_global=2, draws=draws)
    images = torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(1))
    return Batch(views.apply(images, draws), n_global=2, draws=draws)


def flops(method: Method, data: Batch, *, backward: bool) -> int:
    # autocast refuses the meta device, on which there is nothing to cast
    no_autocast = patch("torch.autocast", lambda *_, **__: nullcontext())
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(backward), no_autocast:
        loss = total(method(data))
        if backward:
            loss.backward()
    return counter.get_total_flops()


def counted(*, backward: bool, seed: int = 0) -> tuple[float, list[float]]:
    """FLOPs of MoCo-v3, and those of MoCo-v3 with SER, once for each draw.  seed: of the draws."""
    data = batch(BATCH, size=224, share=SHARE, device="meta")
    with torch.device("meta"):
        plain = MoCoV3(vit_small(), freeze="patch_embed")
        ser = Equivariant(MoCoV3(vit_small(cls_layer=3), freeze="patch_embed"), layer=3, fraction=SHARE)
    torch.manual_seed(seed)
    alone = flops(plain, replace(data, draws=None), backward=backward)
    return alone, [flops(ser, data, backward=backward) for _ in range(DRAWS)]


def step(*, ser: bool) -> Step:
    torch.manual_seed(0)
    vit = partial(ViT, dim=96, depth=6, heads=3, size=32, patch=4)
    method: Method = MoCoV3(vit(cls_layer=3 if ser else 0), freeze="patch_embed")
    if ser:
        method = Equivariant(method, layer=3, fraction=SMALL_SHARE)
    data = batch(SMALL_BATCH, size=32, share=SMALL_SHARE, device="cpu")
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], lr=1e-4)

    def train() -> None:
        total(method(data)).backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step(1, 100)

    return train


def run(*, budget: float = 60.0, clock: Clock = time.perf_counter) -> Iterator[Row]:
    size = f"ViT-S/16, {BATCH} x 224 px"
    for what, backward in (("forward", False), ("both ways", True)):
        alone, with_ser = counted(backward=backward)
        ratios = sorted(each / alone for each in with_ser)
        mean = sum(ratios) / len(ratios)
        yield at_most("SER", size, f"FLOPs {what} over", mean, FLOPS, against="base", low=ratios[0], high=ratios[-1])
        low, mid, high = (1e3 * (ratio - 1) for ratio in (ratios[0], mean, ratios[-1]))
        yield Row("SER", size, f"FLOPs {what}, added", mid, against="per mille", low=low, high=high)
        yield Row("SER", size, "GFLOPs an image", alone / BATCH / 1e9, against="of the base")
    rounds = interleave({"with": step(ser=True), "without": step(ser=False)}, budget=budget, clock=clock)
    ratio, seconds = rounds.ratio("with", "without"), rounds.median("with", scale=1e3)
    size = f"ViT 96 x 6, batch {SMALL_BATCH}"
    yield at_most("SER", size, "step time over", ratio.median, TIME, against="base", low=ratio.low, high=ratio.high)
    yield Row("SER", size, "ms", seconds.median, low=seconds.low, high=seconds.high)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in lines(run(clock=time.process_time)):
        print(line, flush=True)
