"""Images a second from JPEGs in a folder to two normalised views of 224 px, beside torchvision's ImageFolder with
lightly's transform in a DataLoader of two workers.

`python -m benchmarks.data`.  The pictures are drawn, 500 x 375 px, with the spectrum of photographs (amplitude 1 / f)
and about as many bytes as ImageNet's.  SimCLR's policy in both: crop, flip, jitter at full strength, grey, blur,
normalisation.  A round is one epoch of each contestant, from the first batch asked for to the last one given.  Both
have the malloc of the command `reglet`, which keeps what is freed.
"""

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.memory import resident
from benchmarks.peers import declare_torchvision_ops
from benchmarks.rows import Row, at_least, at_most, lines
from benchmarks.timing import Step, interleave
from reglet import keep_freed_memory, views
from reglet.data import load
from reglet.engine.feed import ImageFeed, Place

WIDTH, HEIGHT, SIZE, BATCH, COUNT, WORKERS = 500, 375, 224, 64, 384, 2
FASTER, GROWTH, EPOCHS = 2.0, 1.1, 6


def run(*, budget: float = 100.0) -> Iterator[Row]:
    """`budget`: seconds at most, once each contestant ran five times."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        size = draw(Path(folder))
        epoch = with_reglet(folder)
        steps: dict[str, Step] = {"torchvision and lightly": with_torchvision(folder), "reglet": epoch}
        where = "folder to two views", f"{WIDTH} x {HEIGHT} px, {size / 1000:.0f} kB"
        rounds = interleave(steps, slot=0.0, least=5, budget=budget)
        ratio = rounds.ratio("torchvision and lightly", "reglet")
        faster = partial(at_least, *where, "times faster than", against="torchvision and lightly")
        yield faster(value=ratio.median, target=FASTER, low=ratio.low, high=ratio.high)
        for name in steps:
            seconds = rounds.median(name)
            rate = partial(Row, *where, "images/s", against=name)
            yield rate(value=COUNT / seconds.median, low=COUNT / seconds.high, high=COUNT / seconds.low)
        first, second = (max(after(epoch) for _ in range(EPOCHS)) for _ in range(2))
        flat = partial(at_most, *where, f"most memory, second {EPOCHS} epochs over first")
        yield flat(value=second / first, target=GROWTH, low=second / first, high=second / first)


def after(epoch: Step) -> int:
    """Resident bytes after an epoch."""
    epoch()
    return resident()


def draw(root: Path, *, count: int = COUNT) -> float:
    """`count` JPEGs in two classes; their mean size in bytes."""
    rng = np.random.default_rng(0)
    y, x = np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None]
    amplitude = 1 / np.maximum(np.hypot(y, x), 1 / WIDTH)
    total = 0
    for i in range(count):
        noise = np.fft.rfft2(rng.standard_normal((3, HEIGHT, WIDTH))) * amplitude
        planes = np.fft.irfft2(noise, (HEIGHT, WIDTH))
        planes = 0.9 * planes[:1] + 0.3 * planes  # colours go together
        pixels = np.clip(128 + 50 * planes / planes.std(), 0, 255).astype(np.uint8).transpose(1, 2, 0)
        path = root / "ab"[i % 2] / f"{i:04}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)
        total += path.stat().st_size
    return total / count


def with_reglet(folder: str) -> Step:
    images, policy = load(folder, size=SIZE, keep=False), views.policy("simclr", size=SIZE)

    def epoch() -> None:
        feed = ImageFeed(images, policy, batch=BATCH)
        feed.open(Place(), steps=COUNT // BATCH)
        for step in range(COUNT // BATCH):
            feed(step)
        feed.close()

    return epoch


def with_torchvision(folder: str) -> Step:
    declare_torchvision_ops()
    from lightly.transforms import SimCLRTransform
    from torchvision.datasets import ImageFolder

    images = ImageFolder(folder, SimCLRTransform(input_size=SIZE))
    loader = torch.utils.data.DataLoader(
        images, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=WORKERS, persistent_workers=True
    )

    def epoch() -> None:
        for _ in loader:
            pass

    return epoch


if __name__ == "__main__":
    start = time.perf_counter()
    for line in lines(run()):
        print(line, flush=True)
    print(f"{time.perf_counter() - start:.0f} s")
