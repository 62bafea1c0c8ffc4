import math

import pytest
import torch
from sklearn import metrics as theirs
from sklearn.calibration import calibration_curve
from torch import Tensor

from reglet.probes import metrics


def guesses(n: int = 400, classes: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Probabilities, some of them equal, and labels of an uneven distribution that they are often right about."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.arange(1.0, classes + 1), n, replacement=True, generator=generator)
    logits = torch.randn(n, classes, generator=generator) + 1.5 * torch.eye(classes)[labels]
    return logits.mul(2).round().div(2).softmax(1), labels


def test_equal_scikit_learn() -> None:
    p, y = guesses()
    guess = p.argmax(1)
    for ours, expected in [
        (metrics.accuracy(p, y), theirs.accuracy_score(y, guess)),
        (metrics.macro_f1(guess, y), theirs.f1_score(y, guess, average="macro")),
        (metrics.balanced_accuracy(guess, y), theirs.balanced_accuracy_score(y, guess)),
        (metrics.auroc(p, y), theirs.roc_auc_score(y, p, multi_class="ovr")),
    ]:
        assert ours == pytest.approx(expected, abs=1e-9)
        assert 0.3 < ours < 0.95
    torch.testing.assert_close(
        metrics.confusion(guess, y, classes=6), torch.from_numpy(theirs.confusion_matrix(y, guess))
    )
    table = metrics.confusion(guess, y, classes=6)
    assert metrics.mean_iou(table) == pytest.approx(theirs.jaccard_score(y, guess, average="macro"))


def test_top_k_equals_scikit_learn() -> None:
    p, y = guesses()
    p = p + 1e-3 * torch.rand(p.shape, generator=torch.Generator().manual_seed(1))  # which of equal ones is free
    for k in (1, 3, 5):
        assert metrics.top_k_accuracy(p, y, k=k) == pytest.approx(theirs.top_k_accuracy_score(y, p, k=k))
    assert metrics.top_k_accuracy(p, y, k=6) == 1.0


def test_classes_that_do_not_occur() -> None:
    y = torch.tensor([0, 0, 3, 3])
    guess = torch.tensor([0, 3, 3, 1])
    assert metrics.macro_f1(guess, y) == pytest.approx(theirs.f1_score(y, guess, average="macro", zero_division=0))
    assert metrics.balanced_accuracy(guess, y) == 0.5
    assert metrics.mean_iou(metrics.confusion(guess, y, classes=5)) == pytest.approx((1 / 2 + 1 / 3) / 2)
    p = torch.eye(4)[guess]
    assert metrics.auroc(p, y) == pytest.approx((0.75 + 0.5) / 2)  # classes 0 and 3; 1 and 2 have no positives
    assert math.isnan(metrics.auroc(p, torch.zeros(4, dtype=torch.int64)))


def test_multilabel() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(200, 5, generator=generator) < 0.3
    scores = (torch.rand(200, 5, generator=generator) + 0.4 * truth).mul(10).round().div(10)
    assert metrics.multilabel_auroc(scores, truth) == pytest.approx(theirs.roc_auc_score(truth, scores))
    truth[:, 2] = False  # a class with a single value is left out
    kept = [0, 1, 3, 4]
    assert metrics.multilabel_auroc(scores, truth) == pytest.approx(
        theirs.roc_auc_score(truth[:, kept], scores[:, kept])
    )


def test_calibration_error_by_hand_and_by_scikit_learn() -> None:
    p = torch.tensor([[0.95, 0.05], [0.95, 0.05], [0.65, 0.35], [0.15, 0.85]])
    y = torch.tensor([0, 1, 0, 1])
    # ten bins: {0.95, 0.95} half right, {0.65} right, {0.85} right
    assert metrics.expected_calibration_error(p, y, bins=10) == pytest.approx((2 * 0.45 + 0.35 + 0.15) / 4)
    p, y = guesses()
    confidence, guess = p.max(1)
    right = (guess == y).numpy()
    share, mean = calibration_curve(right, confidence.numpy(), n_bins=15)
    counts = torch.histc(confidence, 15, 0, 1)
    expected = sum(c / 400 * abs(a - b) for c, a, b in zip(counts[counts > 0].tolist(), share, mean, strict=True))
    assert metrics.expected_calibration_error(p, y) == pytest.approx(expected, abs=1e-6)
    assert expected > 0.02
    with pytest.raises(ValueError, match="softmax of logits first"):
        metrics.expected_calibration_error(p.log(), y)


def test_many_medium_few() -> None:
    counts = torch.tensor([500, 101, 100, 20, 19, 1])
    y = torch.arange(6).repeat_interleave(4)
    guess = y.clone()
    guess[[0, 5, 8, 9, 12, 16, 17, 18, 20]] = 9  # wrong: 1 of class 0, 1 of 1, 2 of 2, 1 of 3, 3 of 4, 1 of 5
    assert metrics.many_medium_few(guess, y, counts) == (6 / 8, 5 / 8, 4 / 8)
    none = metrics.many_medium_few(y, y, torch.full((6,), 50))
    assert none.medium == 1.0
    assert math.isnan(none.many)
    assert math.isnan(none.few)
    with pytest.raises(ValueError, match="counts are of 3 classes, labels reach 5"):
        metrics.many_medium_few(y, y, counts[:3])


def test_wilson_interval() -> None:
    # 95 % for 8 of 10, as statsmodels' proportion_confint(8, 10, method="wilson") prints it
    assert metrics.wilson_interval(0.8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    low, high = metrics.wilson_interval(1.0, 50)
    assert high == 1.0
    assert 0.9 < low < 0.95
    assert metrics.wilson_interval(0.0, 50) == pytest.approx((0.0, 1 - low))


def test_bad_input_says_so() -> None:
    p, y = guesses()
    with pytest.raises(ValueError, match="between 1 and the 6 classes, got 7"):
        metrics.top_k_accuracy(p, y, k=7)
    with pytest.raises(ValueError, match="labels are from 0 to 2, got 0 to 5"):
        metrics.confusion(y.clamp(max=2), y, classes=3)
