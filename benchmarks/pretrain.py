"""Images a second of a whole training step, beside lightly and torchvision, and beside a loop written by hand.

`python -m benchmarks.pretrain`.  32 px images, batch 256, Barlow Twins, a conv net 16-32-64-128 with a projector
256-256-128, SMI's two views, AdamW.  The peer is what its tutorials show: torchvision's transforms in a DataLoader with
two workers, lightly's loss.  The loop by hand has reglet's views, loss and layout, and nothing of its engine.

Each contestant trains for one epoch a round and measures itself from the beginning of its third step to that of its
last: what it takes to start and to end, a checkpoint for one, is left out of all of them, which spares the peer its
workers' start.  All have the malloc of the command `reglet`,
which keeps what is freed; `--only freed_memory` says what that gains.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers import lightly_losses
from benchmarks.rows import Row, at_least, at_most, lines
from benchmarks.timing import Step, interleave
from benchmarks.views import smooth, torchvision_policy
from reglet import backbones, keep_freed_memory, losses, methods, views
from reglet.data import InMemory
from reglet.engine.feed import ImageFeed
from reglet.engine.settings import Settings
from reglet.method import Batch
from reglet.train import fit
from reglet.types import total

SIZE, BATCH, STEPS, SKIPPED = 32, 256, 16, 2
WIDTHS = (256, 256, 128)
FASTER, OVERHEAD = 3.0, 1.03


def run(*, budget: float = 240.0) -> Iterator[Row]:
    """`budget`: seconds at most, once each contestant ran five times."""
    keep_freed_memory()
    torch.manual_seed(0)
    images = smooth(torch.randint(256, (BATCH * STEPS, 3, SIZE, SIZE), dtype=torch.uint8))
    watch = Stopwatch()
    steps: dict[str, Step] = {"by hand": by_hand(images, watch), "reglet": with_reglet(images, watch)}
    loss = lightly_losses()
    if loss is not None:
        steps["lightly"] = with_lightly(images, watch, loss.BarlowTwinsLoss())
    rounds = interleave(steps, slot=0.0, least=5, budget=budget, clock=watch.total)
    where = "pretrain, Barlow Twins", f"{SIZE} px, batch {BATCH}"
    if loss is not None:
        ratio = rounds.ratio("lightly", "reglet")
        faster = partial(at_least, *where, "times faster than", against="lightly")
        yield faster(value=ratio.median, target=FASTER, low=ratio.low, high=ratio.high)
    ratio = rounds.ratio("reglet", "by hand")
    slower = partial(at_most, *where, "time over a loop", against="by hand")
    yield slower(value=ratio.median, target=OVERHEAD, low=ratio.low, high=ratio.high)
    for name in steps:
        seconds, count = rounds.median(name), BATCH * (STEPS - 1 - SKIPPED)
        rate = partial(Row, *where, "images/s", against=name)
        yield rate(value=count / seconds.median, low=count / seconds.high, high=count / seconds.low)


class Stopwatch:
    """Seconds that contestants report of themselves; as a clock, their sum so far."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def total(self) -> float:
        return self.seconds

    def epoch(self) -> Callable[[], None]:
        """To be called at the start of every step."""
        calls, start = itertools.count(), [0.0]

        def mark() -> None:
            call = next(calls)
            if call == SKIPPED:
                start[0] = time.perf_counter()
            if call == STEPS - 1:
                self.seconds += time.perf_counter() - start[0]

        return mark


class Marked:
    """A view policy that marks the start of every step."""

    def __init__(self, policy: views.Policy, mark: Callable[[], None]) -> None:
        self.policy, self.mark, self.n_global = policy, mark, policy.n_global

    def draw(self, n: int, generator: torch.Generator | None = None) -> Any:
        self.mark()
        return self.policy.draw(n, generator)

    def apply(self, images: Tensor, draws: Any) -> list[Tensor]:
        return self.policy.apply(images, draws)


def network() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    net = backbones.ConvNet(widths=(16, 32, 64, 128))
    return net, backbones.projector(net.dim, widths=WIDTHS)


def with_reglet(images: Tensor, watch: Stopwatch) -> Step:
    net, head = network()
    method = methods.JointEmbedding(net, losses.BarlowTwinsLoss(gather=True), projector=head)
    data, policy = InMemory(images, name="benchmark"), views.policy("smi", size=SIZE)

    def epoch() -> None:
        mark = watch.epoch()
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(out=str(Path(folder) / "run"), epochs=1, batch=BATCH, accelerator="cpu")
            fit(method, ImageFeed(data, Marked(policy, mark), batch=BATCH), settings, shown=False)

    return epoch


def by_hand(images: Tensor, watch: Stopwatch) -> Step:
    net, head = network()
    method = methods.JointEmbedding(net, losses.BarlowTwinsLoss(), projector=head)
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    policy = views.policy("smi", size=SIZE)
    optimizer = torch.optim.AdamW(method.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    generator = torch.Generator().manual_seed(0)

    def epoch() -> None:
        mark = watch.epoch()
        for index in torch.randperm(len(images)).split(BATCH):
            mark()
            draws = policy.draw(BATCH, generator)
            made = [v.contiguous(memory_format=torch.channels_last) for v in policy.apply(images[index], draws)]
            loss = total(method(Batch(made, n_global=2)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


class TwoViews(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, images: Tensor) -> None:
        self.images, self.transform = images, torchvision_policy(SIZE)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.images[i]), self.transform(self.images[i])


def with_lightly(images: Tensor, watch: Stopwatch, criterion: nn.Module) -> Step:
    net, head = network()
    model = nn.Sequential(net, head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    loader = torch.utils.data.DataLoader(
        TwoViews(images), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True
    )

    def epoch() -> None:
        mark = watch.epoch()
        mark()  # a step begins with waiting for its batch
        for x0, x1 in loader:
            loss = criterion(model(x0), model(x1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mark()

    return epoch


if __name__ == "__main__":
    for line in lines(run()):
        print(line, flush=True)
