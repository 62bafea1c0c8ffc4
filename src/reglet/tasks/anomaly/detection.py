"""How good a detection is: scores of points against labels, at a threshold, with point adjustment or without."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Detection(NamedTuple):
    precision: float
    recall: float
    f1: float


def detection(predicted: Bool[Tensor, " t"], labels: Bool[Tensor, " t"]) -> Detection:
    """Over points.  Nothing predicted has precision 0."""
    right = int((predicted & labels).sum())
    precision, recall = right / max(1, int(predicted.sum())), right / max(1, int(labels.sum()))
    return Detection(precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0)


def adjusted(predicted: Bool[Tensor, " t"], labels: Bool[Tensor, " t"], *, above: float = 0.0) -> Bool[Tensor, " t"]:
    """Point adjustment (Xu et al., WWW 2018): a segment of anomalous points of which one is found is found as a whole.

    It is what the benchmarks print, and it flatters: in a segment of l points even random predictions, right at a rate
    r, find one with probability 1 - (1 - r)^l, so long segments are found by anything (Kim et al., AAAI 2022).

    above: the remedy of Kim et al. (PA%K).  More than this share of a segment must be found for the whole to count.  At
    1 nothing is adjusted.

    >>> labels = torch.tensor([0, 1, 1, 1, 0, 1, 1]).bool()
    >>> adjusted(torch.tensor([1, 0, 0, 1, 0, 0, 0]).bool(), labels).int()
    tensor([1, 1, 1, 1, 0, 0, 0], dtype=torch.int32)
    >>> adjusted(torch.tensor([1, 0, 0, 1, 0, 0, 0]).bool(), labels, above=0.5).int()  # one of three is not enough
    tensor([1, 0, 0, 1, 0, 0, 0], dtype=torch.int32)
    """
    begins = labels.clone()
    begins[1:] &= ~labels[:-1]
    segment = begins.cumsum(0)  # of an anomalous point, from 1
    points, hits = (torch.bincount(segment[some], minlength=len(labels) + 1) for some in (labels, predicted & labels))
    return predicted | (labels & (hits > above * points.double())[segment])


def threshold(train: Float[Tensor, " t"], test: Float[Tensor, " u"], *, ratio: float) -> float:
    """The score that `ratio` per cent of the training and test points together exceed: the percentile 100 - ratio.

    The protocol of Anomaly Transformer and Time-Series-Library.  It looks at the scores of the test part, not at its
    labels; but a ratio near the true one is knowledge of them.
    """
    return float(np.percentile(torch.cat([train, test]).double().cpu().numpy(), 100 - ratio))
