"""An error says what was expected and what came."""

from collections.abc import Callable

import pytest
import torch

from reglet import views

X = torch.rand(2, 3, 8, 8)
BOX = torch.tensor([[0, 0, 8, 8], [1, 1, 4, 4]])
VIEW = views.View(8)
DRAW = VIEW.draw(2, torch.Generator().manual_seed(0))


def boxes(*box: int) -> torch.Tensor:
    return torch.tensor([[0, 0, 8, 8], box])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: VIEW.apply(X[0], DRAW), ValueError, r"\(n, c, h, w\) and not empty, got shape \(3, 8, 8\)"),
        (lambda: VIEW.apply(X[:, :0], DRAW), ValueError, r"not empty, got shape \(2, 0, 8, 8\)"),
        (lambda: VIEW.apply(X.long(), DRAW), TypeError, r"floating point in \[0, 1\] or uint8 .* got torch.int64"),
        (lambda: VIEW.apply(X[:1], DRAW), ValueError, "drawn for a batch of 2, got one of 1"),
        (lambda: views.resized_crop(X, boxes(4, 0, 5, 8), size=8), ValueError, r"outside .* 8 x 8: \[4, 0, 5, 8\]"),
        (lambda: views.resized_crop(X, boxes(0, -1, 5, 8), size=8), ValueError, r"outside .*\[0, -1, 5, 8\]"),
        (lambda: views.resized_crop(X, boxes(0, 0, 0, 8), size=8), ValueError, r"outside .*\[0, 0, 0, 8\]"),
        (lambda: views.resized_crop(X, BOX, size=0), ValueError, "size must be a whole number of at least 1, got 0"),
        (lambda: views.resized_crop(X, BOX[:1], size=8), ValueError, "batch of 1, got one of 2"),
        (lambda: views.ResizedCrop((0.0, 1.0)), ValueError, r"0 < a <= b <= 1, got \(0.0, 1.0\)"),
        (lambda: views.ResizedCrop((0.5, 0.2)), ValueError, r"scale must be a range .* got \(0.5, 0.2\)"),
        (lambda: views.ResizedCrop((0.5, 1.5)), ValueError, r"scale must be a range .* got \(0.5, 1.5\)"),
        (lambda: views.ResizedCrop(ratio=(2.0, 1.0)), ValueError, r"ratio must be a range .* got \(2.0, 1.0\)"),
        (
            lambda: views.ResizedCrop().draw(1, aspect=torch.zeros(1)),
            ValueError,
            "width / height of each",
        ),
        (lambda: views.PadCrop(-1), ValueError, "padding must be a whole number of at least 0, got -1"),
        (lambda: views.View(32, views.PadCrop(4)).apply(X, DRAW), ValueError, "at least 24 px .* got 8 x 8"),
        (lambda: views.View(0), ValueError, "size must be a whole number of at least 1, got 0"),
        (lambda: views.View(8, flip=1.5), ValueError, "flip must be a probability, in \\[0, 1\\], got 1.5"),
        (lambda: views.View(8, rotate=-1.0), ValueError, "rotate must be a number from 0 to 180, got -1"),
        (lambda: views.View(4, blur=views.Blur(9)), ValueError, "blur of 9 px needs views of at least 5 px, got 4"),
        (lambda: views.Blur(4), ValueError, "kernel must be an odd number, got 4"),
        (lambda: views.Blur(3, sigma=(0.0, 1.0)), ValueError, "sigma must be a range"),
        (lambda: views.gaussian_blur(X, torch.ones(2), kernel=17), ValueError, "at least 9 px, got 8 x 8"),
        (lambda: views.gaussian_blur(X, torch.tensor([1.0, 0.0]), kernel=3), ValueError, "must be positive, got 0"),
        (lambda: views.ColorJitter(hue=0.6), ValueError, "hue must be a number from 0 to 0.5, got 0.6"),
        (lambda: views.ColorJitter(contrast=-0.1), ValueError, "contrast must be a number of at least 0, got -0.1"),
        (lambda: views.adjust_contrast(X, torch.tensor([1.0, -1.0])), ValueError, "must not be negative, got -1"),
        (lambda: views.quarter_turn(X[..., :6], torch.tensor([0, 1])), ValueError, "square images, got 8 x 6"),
        (lambda: views.Normalize((0.5,), (0.5, 0.5)), ValueError, "one mean and one std .* got 1 and 2"),
        (lambda: views.Normalize((0.5,), (0.0,)), ValueError, "std must be a positive number, got 0.0"),
        (lambda: views.Policy((VIEW,), n_global=2), ValueError, "number of views, 1; got 2"),
        (lambda: views.Policy((VIEW, views.View(9)), n_global=2), ValueError, r"one size, got \[8, 9\]"),
        (lambda: views.Policy((VIEW,), n_global=1).apply(X, []), ValueError, "each of the 1 views, got 0"),
        (lambda: views.policy("visrag", size=8), ValueError, "Did you mean 'visreg'.* There are: visreg, .* plain"),
        (lambda: views.policy("smi", size=0), ValueError, "size must be a whole number of at least 1, got 0"),
        (
            lambda: views.policy("smi", size=8, n_global=0),
            ValueError,
            "n_global must be a whole number of at least 1, got 0",
        ),
        (lambda: views.policy("smi", size=8, n_local=2), ValueError, "'smi' has no local views, got n_local=2"),
    ],
)
def test_says_what_was_expected(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
