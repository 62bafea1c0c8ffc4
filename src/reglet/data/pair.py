"""Training and test images that belong together: classes numbered alike, and no image in both."""

import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data.hold_out import require_apart
from reglet.data.images import Images


def paired(train: Images, test: Images, *, overlap: str = "refuse") -> tuple[Images, Images]:
    """Both sets.  The labels and domains of `test` are changed to the numbers of `train`.

    overlap: what to do with test images that are also training images; see `require_apart`.
    """
    test = require_apart(train, test, overlap=overlap)
    if test.labels is not None and train.classes is not None:
        test.labels, test.classes = class_numbers(train, test), list(train.classes)
    if test.domain is not None and train.domains is not None and set(test.domains or ()) <= set(train.domains):
        test.domain = _renumbered(test.domain, test.domains or [], train.domains)
        test.domains = list(train.domains)
    return train, test


def class_numbers(train: Images, test: Images) -> Int64[Tensor, " n"]:
    """The labels of `test` in the numbers of `train`, by name.

    Each folder numbers its own classes, so if one lacks a class, all later numbers differ.  A test class that is not in
    the training set is an error.
    """
    if test.labels is None or test.classes is None or train.labels is None or train.classes is None:
        raise ValueError(f"{(train if train.classes is None else test).name} has no labels")
    trained = {train.classes[int(c)] for c in train.labels.unique()}  # a source may name classes without images
    if unknown := [name for c in test.labels.unique() if (name := test.classes[int(c)]) not in trained]:
        raise ValueError(
            f"{test.name} has classes that {train.name} has not: {', '.join(unknown[:5])}"
            f"{', ...' if len(unknown) > 5 else ''}"
        )
    return _renumbered(test.labels, test.classes, train.classes)


def _renumbered(numbers: Tensor, have: list[str], wanted: list[str]) -> Tensor:
    places = {name: i for i, name in enumerate(wanted)}
    return torch.tensor([places.get(name, -1) for name in have])[numbers]
