import math

import pytest
import torch
from sklearn.metrics import jaccard_score
from torch import Tensor

from reglet.probes import segmentation_probe
from reglet.probes.segmentation import _check

GRID = (4, 6)


def scenes(n: int, *, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Masks that are constant on each cell of 4 x 4 pixels, and tokens that show the cell's class among noise."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randint(0, 3, (n, *GRID), generator=generator)
    codes = torch.randn(3, 10, generator=torch.Generator().manual_seed(99))
    tokens = codes[cells].flatten(1, 2) + noise * torch.randn(n, 24, 10, generator=generator)
    return 50 * tokens + 3, cells.repeat_interleave(4, 1).repeat_interleave(4, 2)


def test_equals_scikit_learn_on_what_it_predicts() -> None:
    (x, y), (x_test, y_test) = scenes(40, noise=1.0, seed=0), scenes(20, noise=1.0, seed=1)
    score = segmentation_probe(x, y, x_test, y_test, grid=GRID, epochs=10, lr=0.1)
    expected = jaccard_score(y_test.flatten(), score.predicted.flatten(), average=None)
    assert score.iou == pytest.approx(expected.tolist(), abs=1e-6)
    assert score.mean_iou == pytest.approx(expected.mean(), abs=1e-6)
    assert score.accuracy == pytest.approx(float((score.predicted == y_test).float().mean()))
    assert 0.3 < score.mean_iou < 0.95


def test_reads_tokens_in_their_places() -> None:
    (x, y), (x_test, y_test) = scenes(60, noise=0.05, seed=0), scenes(20, noise=0.05, seed=1)
    middle = torch.zeros(16, 24, dtype=torch.bool)
    middle[1::4, 1::4] = middle[2::4, 2::4] = True  # at a cell's border two classes are interpolated
    predicted = segmentation_probe(x, y, x_test, y_test, grid=GRID, epochs=20, lr=0.1).predicted
    assert (predicted == y_test)[:, middle].float().mean() > 0.97
    wrong = segmentation_probe(x, y, x_test, y_test, grid=(6, 4), epochs=20, lr=0.1).predicted
    assert (wrong == y_test)[:, middle].float().mean() < 0.7


def test_ignored_pixels_count_nowhere() -> None:
    (x, y), (x_test, y_test) = scenes(40, noise=0.3, seed=0), scenes(20, noise=0.3, seed=1)
    hidden, hidden_test = y + 1, y_test + 1
    hidden[:, :, :8], hidden_test[:, :, 16:] = 0, 0
    score = segmentation_probe(x, hidden, x_test, hidden_test, grid=GRID, epochs=10, lr=0.1, ignore=0)
    assert not (score.predicted == 0).any()  # it was never a target
    kept = hidden_test > 0
    expected = jaccard_score(hidden_test[kept], score.predicted[kept], average="macro")
    assert score.mean_iou == pytest.approx(expected, abs=1e-6)
    changed = torch.where(hidden == 0, 0, hidden)
    changed_x = x.clone()
    assert torch.equal(
        segmentation_probe(changed_x, changed, x_test, y_test + 1, grid=GRID, epochs=10, lr=0.1, ignore=0).predicted,
        score.predicted,
    )


def test_a_class_that_does_not_occur() -> None:
    (x, y), (x_test, y_test) = scenes(30, noise=0.1, seed=0), scenes(10, noise=0.1, seed=1)
    score = segmentation_probe(x, y, x_test, y_test.clamp(max=1), grid=GRID, epochs=5, lr=0.1)
    assert score.mean_iou == pytest.approx((score.iou[0] + score.iou[1]) / 2)
    assert score.iou[2] == 0.0
    x, y = x[:5], y[:5]
    never = segmentation_probe(x, torch.where(y == 1, 2, y), x, torch.where(y == 1, 2, y), grid=GRID, epochs=5, lr=0.1)
    assert math.isnan(never.iou[1])


def test_bad_input_says_so() -> None:
    x, y = scenes(6, noise=0.1, seed=0)
    with pytest.raises(ValueError, match="24 training tokens do not fill a grid of 5 x 5"):
        segmentation_probe(x, y, x, y, grid=(5, 5))
    with pytest.raises(ValueError, match="test masks have classes up to 3, training masks up to 2"):
        segmentation_probe(x, y, x, y + 1, grid=GRID)
    with pytest.raises(ValueError, match="one test mask for each image, got 6 images and 5"):
        _check(x, y, x, y[1:], GRID, None)
    with pytest.raises(ValueError, match="every pixel of the training masks"):
        segmentation_probe(x, 0 * y, x, y, grid=GRID, ignore=0)
    with pytest.raises(ValueError, match="1 of 1440 test tokens are not finite"):
        segmentation_probe(x, y, torch.where(torch.arange(1440).view(x.shape) == 5, torch.nan, x), y, grid=GRID)
