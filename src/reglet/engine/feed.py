"""A feed gives the loop the batch of each step, as a function of (seed, step).  That is why resume is exact.

`ImageFeed` makes views of images on the training device.  `TensorFeed` is for data in memory: clips, windows, masks,
features.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data import reader
from reglet.data.images import Images
from reglet.engine.order import VIEWS, Shuffled, generator, rank_slice
from reglet.method import Batch
from reglet.moves import Pack


class Place(NamedTuple):
    """Where a process trains.  It is known only after launching."""

    device: torch.device = torch.device("cpu")
    rank: int = 0
    world: int = 1
    channels_last: bool = False
    read_ahead: int = 2


@runtime_checkable
class Order(Protocol):
    """The samples of each step, over all ranks, as a function of the step."""

    @property
    def seed(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def per_epoch(self) -> int: ...

    def indices(self, step: int) -> Int64[Tensor, " b"]: ...


@runtime_checkable
class Feed(Protocol):
    """Step number -> this rank's batch.

    name, fingerprint: of the data.  The fingerprint changes when the data change.
    """

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def order(self) -> Order: ...

    def open(self, place: Place, *, steps: int) -> None:
        """Called once, after launching and before the first batch.  No batch is asked for beyond `steps`."""

    def __call__(self, step: int) -> Batch: ...

    def close(self) -> None: ...


@runtime_checkable
class ViewPolicy(Protocol):
    """A view policy.  Its draws are data: one entry for each view, with `.take(index or slice)`."""

    @property
    def n_global(self) -> int: ...

    def draw(self, n: int, generator: torch.Generator | None = None) -> Any: ...

    def apply(self, images: Tensor, draws: Any) -> list[Tensor]: ...


class ImageFeed:
    """Views of images.  A thread reads the images of the next steps while a step is computed.

    order: which images a step sees; by default shuffled batches of `batch`.
    """

    def __init__(
        self, images: Images, policy: ViewPolicy, *, batch: int = 256, seed: int = 0, order: Order | None = None
    ) -> None:
        self.images, self.policy = images, policy
        self.order = order or Shuffled(n=len(images), batch=batch, seed=seed)
        self.name, self.fingerprint = images.name, images.fingerprint

    def open(self, place: Place, *, steps: int) -> None:
        self.device = place.device
        self.mine = rank_slice(self.order.batch, place.rank, place.world)
        self.layout = torch.channels_last if place.channels_last else torch.contiguous_format
        self.ahead = reader.Ahead(self._read, depth=place.read_ahead, last=steps)

    def __call__(self, step: int) -> Batch:
        found, pack = self.ahead(step)
        pixels = pack.send()
        # Clones, because a pack stays in memory as long as any of its parts, and the pixels are not needed any more.
        known = [pixels.pop().clone() for about in self._known() if about is not None]
        labels, domain = (None if about is None else known.pop() for about in self._known())
        views = reader.views(self.policy, found._replace(pixels=pixels))
        views = [v.contiguous(memory_format=self.layout) for v in views]
        return Batch(views, self.policy.n_global, labels, domain, found.draws)

    def _known(self) -> tuple[Tensor | None, Tensor | None]:
        return self.images.labels, self.images.domain

    def _read(self, step: int) -> tuple[reader.Read, Pack]:
        draws, index = generator(self.order.seed, VIEWS, step), self.order.indices(step)
        finish = self.device.type == "cpu"
        found = reader.read(self.images, self.policy, index, mine=self.mine, generator=draws, finish=finish)
        known = [about[index[self.mine]] for about in self._known() if about is not None]
        return found, Pack([*found.pixels, *known], self.device)

    def close(self) -> None:
        self.ahead.close()


# (indices of the samples, generator of this step) -> the batch over all ranks
MakeBatch = Callable[[Int64[Tensor, " b"], torch.Generator], Batch]


class TensorFeed:
    """Batches that a function makes on the host, from indices and a generator.

    Every rank makes the batch of all ranks and takes its part, so W processes see the same as one.

    >>> x = torch.arange(6.0)[:, None]
    >>> feed = TensorFeed(lambda i, g: Batch([x[i]]), Shuffled(n=6, batch=2, seed=0), name="numbers", fingerprint="0")
    >>> feed.open(Place(), steps=3)
    >>> sorted(float(v) for step in range(3) for v in feed(step).views[0])
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """

    def __init__(self, make: MakeBatch, order: Order, *, name: str, fingerprint: str) -> None:
        self.make, self.order, self.name, self.fingerprint = make, order, name, fingerprint

    def open(self, place: Place, *, steps: int) -> None:
        self.place = place

    def __call__(self, step: int) -> Batch:
        batch = self.make(self.order.indices(step), generator(self.order.seed, VIEWS, step))
        mine = rank_slice(len(batch), self.place.rank, self.place.world)
        return (batch.take(mine) if self.place.world > 1 else batch).to(self.place.device)

    def close(self) -> None:
        """There is nothing to close."""
