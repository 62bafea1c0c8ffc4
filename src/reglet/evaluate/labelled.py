"""Labels that a probe can be trained and tested on."""

import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data import Images, Part
from reglet.data.splits import hold_out
from reglet.probes.check import check_classes


def labels_of(train: Images, test: Images) -> tuple[Int64[Tensor, " m"], Int64[Tensor, " n"]]:
    """Labels of both parts in the numbering of the first; an error where they do not make a task."""
    for images in (train, test):
        if images.labels is None or images.classes is None:
            raise ValueError(
                f"{images.name} has no labels, so there is nothing to score. "
                "A folder has them as class/image, a .npz archive as an array `labels`"
            )
    assert train.labels is not None and test.labels is not None  # noqa: PT018
    check_classes(train.labels)
    return train.labels, _renumbered(train, test)


def split(images: Images, test: Images | None, *, seed: int, share: float = 0.2) -> tuple[Images, Images]:
    """Training and test images; where the source has no test images, a share of the others is held out."""
    if test is not None:
        return images, test
    inside, outside = hold_out(len(images), share, seed=seed)
    return Part(images, inside, name="fit"), Part(images, outside, name="held-out")


def _renumbered(train: Images, test: Images) -> Int64[Tensor, " n"]:
    """By name: two folders number their classes each for itself."""
    assert train.classes is not None and test.classes is not None and test.labels is not None  # noqa: PT018
    if train.classes == test.classes:
        return test.labels
    present = [test.classes[int(c)] for c in test.labels.unique()]
    unknown = [name for name in present if name not in train.classes]
    if unknown:
        raise ValueError(
            f"{test.name} has classes that {train.name} has not: {', '.join(unknown[:5])}"
            f"{', ...' if len(unknown) > 5 else ''}"
        )
    places = {name: i for i, name in enumerate(train.classes)}
    return torch.tensor([places.get(name, -1) for name in test.classes])[test.labels]
