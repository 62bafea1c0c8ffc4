"""Test images where the data bring none, and the care that no image is on both sides.

The rule is a function of the images alone, so that every command and every later run finds the same part:

1. Of each class (in each domain) the images are put in the order of a hash of their name, or of their pixels where
   they have no name.
2. The first fifth is held out, at least one of a class that has two, and at most MOST images in all.
3. Of images that exist twice, on both sides, the copies are taken out of the test part.
"""

import hashlib
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data.images import Images

SHARE = 0.2
MOST = 10_000
COMPARED = 2_000  # test images that are looked for among the training images; of more, so many evenly spread
FEW = 0.01  # share of test images that are left out with a warning; if more are training images, it is an error

Index = Int64[Tensor, "_"]


def hold_out_test(images: Images) -> tuple[Images, Images | None]:
    """Training images, and those held out for the test; None where no class has two images."""
    inside, outside = _parts(images)
    if not len(outside):
        return images, None
    train, test = images.part(inside, name="train"), images.part(outside, name="held-out")
    copies = shared(train, test)
    if len(copies):
        left = np.setdiff1d(np.arange(len(test)), copies.numpy())
        test = images.part(outside[torch.from_numpy(left)], name="held-out")
    return train, test if len(test) else None


def require_apart(train: Images, test: Images) -> Images:
    """`test` without the images that are also in `train`; an error where these are more than a few."""
    copies = shared(train, test)
    if not len(copies):
        return test
    names = test.names(copies[:3])
    which = f", such as {', '.join(names)}" if names else ""
    of = min(len(test), COMPARED)
    if len(copies) > FEW * of:
        raise ValueError(
            f"{len(copies)} of {of} test images of {test.name} are training images of {train.name}, too{which}: a "
            "score on them would say nothing"
        )
    warnings.warn(
        f"{len(copies)} test images of {test.name} are training images, too, and are left out of the test{which}",
        stacklevel=3,
    )
    keep = np.setdiff1d(np.arange(len(test)), copies.numpy())
    return test.part(torch.from_numpy(keep), name="without-copies")


def shared(train: Images, test: Images, *, most: int = COMPARED) -> Index:
    """Of the test images that are compared, `most` evenly spread, those with the content of a training image."""
    looked = torch.linspace(0, len(test) - 1, min(len(test), most)).long().unique()
    candidates = torch.arange(len(train))
    long, long_test = _lengths(train), _lengths(test)
    if long is not None and long_test is not None:  # files of different lengths differ
        looked = looked[torch.isin(long_test[looked], long)]
        candidates = candidates[torch.isin(long, long_test[looked])]
    if not len(looked):
        return looked
    known = set(train.content(candidates))
    return looked[torch.tensor([digest in known for digest in test.content(looked)])]


def _lengths(images: Images) -> Index | None:
    lengths: Sequence[int] = getattr(images, "lengths", list)()
    return torch.tensor(lengths) if len(lengths) and 0 not in lengths else None


def _parts(images: Images) -> tuple[Index, Index]:
    n = len(images)
    order = _order(images)
    kinds = torch.zeros(n, dtype=torch.int64)
    for known in (images.labels, images.domain):
        if known is not None:
            kinds = kinds * (int(known.max()) + 1) + known
    share = min(SHARE, MOST / n)
    held = []
    for kind in kinds.unique().tolist():
        members = order[kinds[order] == kind]
        count = len(members)
        held.append(members[: 0 if count < 2 else max(1, int(share * count + 0.5))])
    outside = torch.cat(held).sort().values
    mask = torch.ones(n, dtype=torch.bool)
    mask[outside] = False
    return mask.nonzero()[:, 0], outside


def _order(images: Images) -> Index:
    """All indices, sorted by the hash of the name or of the pixels."""
    every = torch.arange(len(images))
    names = images.names(every)
    keys = images.content(every) if names is None else [_hash(name) for name in names]
    first = np.array([int.from_bytes(key[:8], "big") for key in keys], np.uint64)
    return torch.from_numpy(np.argsort(first, kind="stable"))


def _hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
