"""Labels that a probe can be trained and tested on."""

import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data import Images, Part
from reglet.data.pair import class_numbers
from reglet.probes.check import check_classes


def labels_of(train: Images, test: Images) -> tuple[Int64[Tensor, " m"], Int64[Tensor, " n"]]:
    """Labels of both parts, in the numbering of the first.  Raises if they do not make a task."""
    for images in (train, test):
        if images.labels is None or images.classes is None:
            raise ValueError(
                f"{images.name} has no labels, so there is nothing to score. "
                "A folder has them as class/image, a .npz archive as an array `labels`"
            )
    assert train.labels is not None and test.labels is not None  # noqa: PT018
    check_classes(train.labels)
    return train.labels, class_numbers(train, test)


def at_most(images: Images, most: int) -> Images:
    """All images, or a random part that is the same each time; its name says so."""
    if len(images) <= most:
        return images
    index = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:most].sort().values
    return Part(images, index, name=f"{most}-of-{len(images)}")


def split(images: Images, test: Images | None) -> tuple[Images, Images]:
    """Both parts.  Raises if there is nothing to test on, because images that were trained on tell nothing."""
    if test is None:
        raise ValueError(
            f"{images.name} has no images to test on: every class has one, or copies of it. Give data= with a test part"
        )
    return images, test
