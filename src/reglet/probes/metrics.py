"""Metrics of predictions against labels.  A prediction is scores (n, classes), larger is likelier, or classes (n,)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from reglet import check
from reglet.precision import in_float64


def dice(table: Int[Tensor, "classes classes"]) -> Float64[Tensor, " classes"]:
    """2 |A and B| / (|A| + |B|), which is the F1 of pixels; NaN for a class that neither occurs nor was predicted.

    >>> import torch
    >>> dice(torch.tensor([[90, 2], [4, 4]])).tolist()[1]
    0.5714285714285714
    """
    _check_table(table)
    table = in_float64(table)
    return 2 * table.diagonal() / (table.sum(0) + table.sum(1))


def iou(table: Int[Tensor, "classes classes"]) -> Float64[Tensor, " classes"]:
    """|A and B| / |A or B| = dice / (2 - dice); NaN for a class that neither occurs nor was predicted."""
    _check_table(table)
    table = in_float64(table)
    right = table.diagonal()
    return right / (table.sum(0) + table.sum(1) - right)


def accuracy(scores: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> float:
    """The accuracy.  A label beyond the classes counts as wrong."""
    _check_scores(scores, labels)
    return float(in_float64(scores.argmax(1) == labels).mean())


def top_k_accuracy(scores: Float[Tensor, "n classes"], labels: Int[Tensor, " n"], *, k: int = 5) -> float:
    """How often the label is among the k largest scores.  A label beyond the classes was never seen: it is missed.

    >>> top_k_accuracy(torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]]), torch.tensor([1, 2]), k=2)
    0.5
    """
    _check_scores(scores, labels)
    check.whole(1, k=k)
    if not k <= scores.shape[1]:
        raise ValueError(f"k is between 1 and the {scores.shape[1]} classes, got {k}")
    return float(in_float64((scores.topk(k, dim=1).indices == labels[:, None]).any(1)).mean())


def confusion(
    predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"], *, classes: int
) -> Int[Tensor, "classes classes"]:
    """How often label i was taken for j, at [i, j]."""
    check.whole(1, classes=classes)
    for what, values in (("predictions", predicted), ("labels", labels)):
        check.class_numbers(len(labels) if isinstance(labels, Tensor) and labels.ndim else None, **{what: values})
        if len(values) and int(values.max()) >= classes:
            raise ValueError(f"{what} are from 0 to {classes - 1}, got {int(values.min())} to {int(values.max())}")
    return (labels.long() * classes + predicted).bincount(minlength=classes**2).view(classes, classes)


def macro_f1(predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> float:
    """Mean over classes of 2 precision recall / (precision + recall) = 2 right / (predicted + actual).

    Over the classes that occur among labels or predictions, as in scikit-learn.
    """
    table = _confusion(predicted, labels)
    both = table.sum(0) + table.sum(1)
    return float((2 * table.diagonal() / both)[both > 0].mean())


def balanced_accuracy(predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> float:
    """The accuracy on each class that occurs, averaged over classes."""
    table = _confusion(predicted, labels)
    actual = table.sum(1)
    return float((table.diagonal() / actual)[actual > 0].mean())


def auroc(scores: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> float:
    """Mean over classes of the area under the curve of one against the rest.

    A class that has all samples, or none, is left out; NaN if that leaves none.  Two classes have the same area.
    """
    _check_scores(scores, labels)
    return multilabel_auroc(scores, labels[:, None] == torch.arange(scores.shape[1], device=labels.device))


def multilabel_auroc(scores: Float[Tensor, "n classes"], truth: Bool[Tensor, "n classes"]) -> float:
    """Mean over classes of P(score of a positive > score of a negative), ties counting half (ChestX-ray14's AUROC).

    Classes with a single value are left out; NaN if that leaves none.
    """
    _check_scores(scores)
    _check_truth(truth, scores)
    columns = in_float64(scores).T.contiguous()
    ordered = columns.sort(dim=1).values
    below, up_to = (torch.searchsorted(ordered, columns, right=right) for right in (False, True))
    rank = (below + up_to + 1).double() / 2  # places from 1; equal scores share the mean of theirs
    positive = truth.to(columns.device).T.double()
    p, n = positive.sum(1), (1 - positive).sum(1)
    area = ((rank * positive).sum(1) - p * (p + 1) / 2) / (p * n)
    return float(area[(p > 0) & (n > 0)].mean())


def expected_calibration_error(
    probabilities: Float[Tensor, "n classes"], labels: Int[Tensor, " n"], *, bins: int = 15
) -> float:
    """sum over bins of |B|/n |accuracy(B) - confidence(B)|,  bins of equal width of the largest probability.

    Guo et al., ICML 2017, arXiv:1706.04599, equation 3.
    """
    _check_scores(probabilities, labels)
    check.whole(1, bins=bins)
    if bool((probabilities < 0).any()) or not bool((probabilities.sum(1) - 1).abs().max() < 1e-3):
        raise ValueError("expected probabilities: not negative, and each row's sum 1; take the softmax of logits first")
    confidence, predicted = in_float64(probabilities).max(1)
    where = (confidence * bins).ceil().long().clamp(1, bins) - 1  # ((b - 1) / bins, b / bins], as in the paper
    gap = (predicted == labels.to(predicted.device)).double() - confidence
    return float(gap.new_zeros(bins).index_add_(0, where, gap).abs().sum() / len(labels))


class ByFrequency(NamedTuple):
    """Accuracy on classes of many, medium and few training samples; NaN where there are none."""

    many: float
    medium: float
    few: float


def many_medium_few(
    predicted: Int[Tensor, " n"],
    labels: Int[Tensor, " n"],
    counts: Int[Tensor, " classes"],
    *,
    many: int = 100,
    few: int = 20,
) -> ByFrequency:
    """Accuracy on the test samples of classes with more than `many` training samples, fewer than `few`, and between.

    counts: training samples of each class.  The thresholds are those of Liu et al., CVPR 2019 (ImageNet-LT).
    """
    check.class_numbers(labels=labels, counts=counts)
    check.class_numbers(len(labels), predicted=predicted)
    check.whole(0, many=many, few=few)
    if int(labels.max()) >= len(counts):
        raise ValueError(f"counts are of {len(counts)} classes, labels reach {int(labels.max())}")
    right, count = in_float64(predicted == labels), counts[labels.long()]
    groups = (count > many, (count >= few) & (count <= many), count < few)
    return ByFrequency(*(float(right[group.to(right.device)].mean()) for group in groups))


def mean_iou(table: Int[Tensor, "classes classes"]) -> float:
    """Mean over the classes that occur of intersection / union, from how often label i was taken for j."""
    _check_table(table)
    actual = table.sum(1)
    union = actual + table.sum(0) - table.diagonal()
    return float((table.diagonal() / union)[actual > 0].mean())


def _check_table(table: Tensor) -> None:
    check.tensor("table", table, None, None, floating=False)
    if table.shape[0] != table.shape[1] or bool((table < 0).any()) or not bool(table.any()):
        raise ValueError(f"expected a table of counts (classes, classes), not all 0; got {tuple(table.shape)}")


def wilson_interval(fraction: float, n: int, *, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a share of n independent samples, 95 % unless another z is given.

        (p + z^2/2n -+ z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n)

    It is only the error of testing on n samples.  Another training run varies besides.
    """
    check.probability(fraction=fraction)
    check.whole(1, n=n)
    check.positive(z=z)
    middle, scale = fraction + z**2 / (2 * n), 1 + z**2 / n
    half = z * (fraction * (1 - fraction) / n + z**2 / (4 * n**2)) ** 0.5
    return min(fraction, max(0.0, (middle - half) / scale)), max(fraction, min(1.0, (middle + half) / scale))


def _confusion(predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> Float[Tensor, "classes classes"]:
    check.class_numbers(labels=labels)
    check.class_numbers(len(labels), predicted=predicted)
    classes = int(torch.maximum(predicted.max(), labels.max())) + 1
    return in_float64(confusion(predicted, labels, classes=classes))


def _check_scores(scores: Tensor, labels: Tensor | None = None) -> None:
    """Infinite scores have an order.  NaN has none, and would count as the largest."""
    check.tensor("scores", scores, None, None)
    if bool(scores.isnan().any()):
        raise ValueError(f"{int(scores.isnan().sum())} of {scores.numel()} scores are NaN")
    if labels is not None:
        check.class_numbers(len(scores), labels=labels)


def _check_truth(truth: Tensor, scores: Tensor) -> None:
    check.tensor("truth", truth, *scores.shape, floating=False)
    if truth.dtype != torch.bool:
        raise TypeError(f"truth must be a tensor of True and False, got {truth.dtype}")
