"""Labelled clips as log-mel maps, cut into a part to train on and one to test on."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad


class Clips(NamedTuple):
    """Every band of x has mean 0 and deviation 1 over the training clips."""

    x: Float[Tensor, "n mels t"]
    y: Int64[Tensor, " n"]
    train: Int64[Tensor, " a"]
    test: Int64[Tensor, " b"]
    classes: tuple[str, ...]


def prepared(
    x: Float[Tensor, "n mels t"],
    y: Int64[Tensor, " n"],
    tested: Tensor,
    *,
    classes: tuple[str, ...],
    frames: int = 0,
    pool: int = 1,
) -> Clips:
    """Checked, brought to `frames`, averaged over `pool` bands and frames, standardised.  tested: bool, by clip."""
    if not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).flatten(1).any(1).sum())
        raise ValueError(
            f"{bad} of {len(x)} clips have values that are not finite: give silence a floor before the log"
        )
    x = fitted(x, frames or x.shape[2], silence=float(x.min()))
    if pool > min(x.shape[1:]):
        raise ValueError(f"pool={pool} is more than the {x.shape[1]} bands or the {x.shape[2]} frames")
    x = avg_pool2d(x, pool)
    train, test = ((~tested).nonzero()[:, 0], tested.nonzero()[:, 0])
    check_parts(y, train, test, classes)
    deviation = x[train].std((0, 2), keepdim=True)
    if float(deviation.max()) < 1e-6:
        raise ValueError(f"all {len(train)} training clips are the same in every frame: they are silent")
    # a band that is silent in training stays as it is, less its mean
    return Clips(
        (x - x[train].mean((0, 2), keepdim=True)) / deviation.where(deviation > 1e-6, 1.0), y, train, test, classes
    )


def fitted(x: Float[Tensor, "n mels t"], frames: int, *, silence: float) -> Float[Tensor, "n mels frames"]:
    """The first `frames` frames; where there are fewer, silence after them."""
    x = x[:, :, :frames]
    return pad(x, (0, frames - x.shape[2]), value=silence)


def check_parts(y: Tensor, train: Tensor, test: Tensor, classes: tuple[str, ...]) -> None:
    if len(train) < 2 or not len(test):
        raise ValueError(f"expected clips to train on and to test on, got {len(train)} and {len(test)}")
    known = set(y[train].tolist())
    if len(known) < 2:
        raise ValueError(f"all {len(train)} training clips are of the class {classes[int(y[train[0]])]!r}")
    if unknown := sorted(set(y[test].tolist()) - known):
        raise ValueError(f"{classes[unknown[0]]!r} is tested and has no training clip")
