"""The batch of a step: images read ahead in a thread, views made on the training device."""

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import UInt8
from torch import Tensor

from reglet.data.images import Images
from reglet.engine.order import VIEWS, Order, generator, share
from reglet.method import Batch
from reglet.threads import single_threads


@runtime_checkable
class Policy(Protocol):
    """A view policy: draws are data, one entry per view, each with `.take(index or slice)`."""

    @property
    def n_global(self) -> int: ...

    def draw(self, n: int, generator: torch.Generator | None = None) -> Any: ...

    def apply(self, images: Tensor, draws: Any) -> list[Tensor]: ...


class Feed:
    """Step number -> this rank's batch; the images of the step after it, if before `last`, are read meanwhile."""

    def __init__(
        self,
        images: Images,
        policy: Policy,
        order: Order,
        *,
        device: torch.device,
        rank: int = 0,
        world: int = 1,
        channels_last: bool = False,
        last: int,
    ) -> None:
        self.images, self.policy, self.order = images, policy, order
        self.last = last
        self.device, self.mine = device, share(order.batch, rank, world)
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.reader = single_threads(1)
        self.ahead: tuple[int, Future[Tensor]] | None = None

    def __call__(self, step: int) -> Batch:
        images = self._images(step)
        index = self.order.indices(step)[self.mine]
        draws = self.policy.draw(self.order.batch, generator(self.order.seed, VIEWS, step))
        draws = [draw.take(self.mine) for draw in draws]
        views = [v.contiguous(memory_format=self.layout) for v in self.policy.apply(images, draws)]
        labels, domain = (self._known(known, index) for known in (self.images.labels, self.images.domain))
        return Batch(views, self.policy.n_global, labels, domain, draws)

    def _known(self, about: Tensor | None, index: Tensor) -> Tensor | None:
        return None if about is None else about[index].to(self.device)

    def _images(self, step: int) -> UInt8[Tensor, "n c h w"]:
        ready = self.ahead[1] if self.ahead and self.ahead[0] == step else self.reader.submit(self._read, step)
        images = ready.result()
        if step + 1 < self.last:
            self.ahead = step + 1, self.reader.submit(self._read, step + 1)
        return images.to(self.device, non_blocking=True)

    def _read(self, step: int) -> UInt8[Tensor, "n c h w"]:
        images = self.images.batch(self.order.indices(step)[self.mine])
        return images.pin_memory() if self.device.type == "cuda" else images

    def close(self) -> None:
        self.reader.shutdown(cancel_futures=True)


def cut(batch: Batch, size: int) -> list[Batch]:
    """The batch in parts of at most `size` samples."""
    n = len(batch.views[0])
    return [_samples(batch, slice(i, min(i + size, n))) for i in range(0, n, size)]


def _samples(batch: Batch, which: slice) -> Batch:
    return replace(
        batch,
        views=[v[which] for v in batch.views],
        labels=None if batch.labels is None else batch.labels[which],
        domain=None if batch.domain is None else batch.domain[which],
        draws=None if batch.draws is None else [draw.take(which) for draw in batch.draws],
    )
