"""Images for a step's views, read ahead of it.

`read` runs in a thread on the host.  It draws the views.  If images have different sizes or are on disk, it also crops
them while they are decoded.  `views` does the rest on the training device.  If that is the CPU, the threads that decode
do the rest, too: each computes alone, so that none waits for another.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data.images import Images
from reglet.threads import single_threads

T = TypeVar("T")


class Read(NamedTuple):
    """pixels: all images in one tensor; or one tensor of crops for each view; or the finished views."""

    pixels: list[Tensor]
    draws: list[Any]
    stage: Literal["whole", "cropped", "finished"]


def read(
    images: Images,
    policy: Any,
    index: Int64[Tensor, " b"],
    *,
    mine: slice,
    generator: torch.Generator,
    finish: bool = False,
) -> Read:
    """The images at index[mine], and what is drawn for them.

    index: of the whole step, over all ranks.  Views are drawn for all, so that ranks see what one process would see.
    finish: make the views of cropped images here, because they are needed on the CPU.
    """
    own = index[mine]
    whole = images.whole(own)
    if whole is None and not getattr(policy, "crops_whole_images", False):  # a policy that wants images of one size
        whole = images.batch(own)
    sizes = images.sizes(own) if whole is None else None
    draws = policy.draw(len(index), generator, **_aspect(len(index), mine, whole, sizes))
    draws = [draw.take(mine) for draw in draws]
    if whole is not None:
        return Read([whole], draws, "whole")
    assert sizes is not None
    crops = images.crops(own, policy.crops(draws, height=sizes[:, 0], width=sizes[:, 1]))
    if not finish or (pool := getattr(images, "pool", None)) is None:
        return Read(crops, draws, "cropped")
    return Read(policy.finish(crops, draws, run=pool.map), draws, "finished")


def _aspect(n: int, mine: slice, whole: Tensor | None, sizes: Tensor | None) -> dict[str, Tensor]:
    """Width / height of the images, if the policy needs it.

    Those of other ranks are unknown here.  They do not matter, because a draw depends only on its own image's aspect.
    """
    aspect = torch.ones(n, dtype=torch.float32)
    if sizes is not None:
        aspect[mine] = sizes[:, 1] / sizes[:, 0]
        return {"aspect": aspect}
    assert whole is not None
    height, width = whole.shape[2:]
    return {} if height == width else {"aspect": aspect * (width / height)}


def views(policy: Any, found: Read) -> list[Tensor]:
    """The views, on the device of the pixels."""
    if found.stage == "finished":
        return found.pixels
    apply, given = (policy.apply, found.pixels[0]) if found.stage == "whole" else (policy.finish, found.pixels)
    made: list[Tensor] = apply(given, found.draws)
    return made


class Ahead(Generic[T]):
    """`make(step)` for one step after another.  A thread makes the next `depth` steps ahead, up to `last`."""

    def __init__(self, make: Callable[[int], T], *, depth: int = 2, last: int) -> None:
        if depth < 0:
            raise ValueError(f"read_ahead must not be negative, got {depth}")
        self.make, self.depth, self.last = make, depth, last
        self.reader = single_threads(1)
        self.coming: dict[int, Future[T]] = {}

    def __call__(self, step: int) -> T:
        ready = self.coming.pop(step, None) or self.reader.submit(self.make, step)
        for other in list(self.coming):
            if not step < other <= step + self.depth:  # someone went elsewhere
                self.coming.pop(other).cancel()
        for later in range(step + 1, min(step + 1 + self.depth, self.last)):
            if later not in self.coming:
                self.coming[later] = self.reader.submit(self.make, later)
        return ready.result()

    def close(self) -> None:
        self.reader.shutdown(cancel_futures=True)
