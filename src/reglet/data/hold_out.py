"""Holds out test images if the data have none, and checks that no image is in both parts.

The rule depends on the images alone, so every command and every later run finds the same part:

1. The images of each class (in each domain) are sorted by a hash of their name, or of their pixels if they have no
   name.
2. The first fifth is held out: at least one image of a class that has two, and at most MOST images in all.
3. Test images that are copies of training images are removed.

If the data have a test part, an image in both parts is an error.  `overlap="drop"` removes the copies from the test
part instead: some well-known sets have a few.
"""

import hashlib
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from reglet import check
from reglet.data.images import Images

SHARE = 0.2
MOST = 10_000

OVERLAP = ("refuse", "drop")
Index = Int64[Tensor, "_"]


def hold_out_test(images: Images) -> tuple[Images, Images | None]:
    """Training images and held-out test images; None if no class has two images."""
    inside, outside = held_out(images)
    if len(inside) == len(images):
        return images, None
    train = images.part(inside, name="train")
    return train, images.part(outside, name="held-out") if len(outside) else None


def held_out(images: Images) -> tuple[Index, Index]:
    """The indices of both parts.  Held-out copies of a training image are in neither."""
    inside, outside = _parts(images)
    if len(outside):
        copies = shared(images.part(inside, name="train"), images.part(outside, name="held-out"))
        outside = outside[np.setdiff1d(np.arange(len(outside)), copies.numpy())]
    return inside, outside


def require_apart(train: Images, test: Images, *, overlap: str = "refuse") -> Images:
    """`test`, if it shares no image with `train`.  Else an error or, with "drop", `test` without those images."""
    check.choice("overlap", overlap, OVERLAP)
    copies = shared(train, test)
    if not len(copies):
        return test
    names = test.names(copies[:3])
    which = f", such as {', '.join(names)}" if names else ""
    found = f"{len(copies)} of {len(test)} test images of {test.name} are training images of {train.name}, too{which}"
    if overlap == "refuse" or len(copies) == len(test):
        raise ValueError(f"{found}: a score on them would say nothing; overlap=drop leaves them out of the test")
    warnings.warn(f"{found}, and are left out of the test", stacklevel=3)
    keep = np.setdiff1d(np.arange(len(test)), copies.numpy())
    return test.part(torch.from_numpy(keep), name="without-copies")


def shared(train: Images, test: Images) -> Index:
    """The test images that equal a training image.

    Files are compared by their length, then by a few bytes from the middle.  Only files that agree in both are read
    whole.
    """
    ours, theirs = torch.arange(len(train)), torch.arange(len(test))
    for look in (_lengths, _glimpses, lambda images, index: images.content(index)):
        a, b = look(train, ours), look(test, theirs)
        if a is None or b is None:
            continue
        both = set(a) & set(b)
        ours = ours[torch.tensor([x in both for x in a], dtype=torch.bool)]
        theirs = theirs[torch.tensor([x in both for x in b], dtype=torch.bool)]
        if not both:
            break
    return theirs


def _lengths(images: Images, index: Index) -> Sequence[int] | None:
    lengths = torch.as_tensor(getattr(images, "lengths", list)())
    return lengths[index].tolist() if len(lengths) and 0 not in lengths else None


def _glimpses(images: Images, index: Index) -> Sequence[bytes] | None:
    return images.glimpse(index) if hasattr(images, "glimpse") else None


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
