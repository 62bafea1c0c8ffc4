"""Class by class: how often each is right, what it is mistaken for, and the accuracy by chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from reglet.probes.metrics import confusion


@dataclass(frozen=True)
class ByClass:
    """by: the probe that was asked.  table[i][j]: how often an image of class i was taken for class j."""

    by: str
    names: list[str]
    table: list[list[int]]

    @property
    def counts(self) -> list[int]:
        """Test images of each class."""
        return [sum(row) for row in self.table]

    @property
    def accuracy(self) -> list[float | None]:
        """Of each class; None where it has no test image."""
        return [row[i] / sum(row) if sum(row) else None for i, row in enumerate(self.table)]

    def mistakes(self, most: int) -> list[tuple[str, str, int]]:
        """(class, what it was taken for, how often), the most frequent first."""
        found = [
            (self.names[i], self.names[j], n)
            for i, row in enumerate(self.table)
            for j, n in enumerate(row)
            if i != j and n
        ]
        return sorted(found, key=lambda each: -each[2])[:most]


def by_class(guesses: dict[str, Tensor], labels: Int64[Tensor, " n"], names: Sequence[str]) -> ByClass | None:
    """Takes the classifier itself if there is one, else the linear probe, else the first probe."""
    order = [name for name in ("classifier", "linear", *guesses) if name in guesses]
    if not order:
        return None
    table = confusion(guesses[order[0]].cpu(), labels.cpu(), classes=len(names))
    return ByClass(order[0], list(names), table.tolist())


def chance(train_labels: Int64[Tensor, " m"], labels: Int64[Tensor, " n"], names: Sequence[str]) -> tuple[str, float]:
    """The most frequent class of the training images, and the accuracy of always answering with it.

    >>> chance(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 0, 0]), ["cat", "dog"])
    ('dog', 0.25)
    """
    common = int(train_labels.bincount(minlength=len(names)).argmax())
    return names[common], float((labels == common).double().mean())


@torch.no_grad()
def own_probabilities(head: nn.Linear, classes: Sequence[str], features: Tensor, names: Sequence[str]) -> Tensor | None:
    """Of the classes `names`, by a classifier that may know others besides; None where it does not know all of them."""
    if not set(names) <= set(classes):
        return None
    return head.to(features.device)(features)[:, [list(classes).index(name) for name in names]].softmax(1)
