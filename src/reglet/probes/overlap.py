"""How well a predicted region covers the true one, class by class, from `confusion`'s table."""

from jaxtyping import Float64, Int
from torch import Tensor

from reglet.precision import in_float64


def dice(table: Int[Tensor, "classes classes"]) -> Float64[Tensor, " classes"]:
    """2 |A and B| / (|A| + |B|), which is the F1 of pixels; NaN for a class that neither occurs nor was predicted.

    >>> import torch
    >>> dice(torch.tensor([[90, 2], [4, 4]])).tolist()[1]
    0.5714285714285714
    """
    table = in_float64(table)
    return 2 * table.diagonal() / (table.sum(0) + table.sum(1))


def iou(table: Int[Tensor, "classes classes"]) -> Float64[Tensor, " classes"]:
    """|A and B| / |A or B| = dice / (2 - dice); NaN for a class that neither occurs nor was predicted."""
    table = in_float64(table)
    right = table.diagonal()
    return right / (table.sum(0) + table.sum(1) - right)
