"""Accuracies and flip rates of predictors whose answers are known."""

import pytest
import torch
from torch import Tensor

from reglet.diagnostics.robustness import Robustness, Stability, domain_shift, flip_rate, robustness, stability


def data(n: int = 40) -> tuple[Tensor, Tensor]:
    """Dark and bright images."""
    labels = torch.arange(n) % 2
    x = (
        0.25
        + 0.4 * labels.view(-1, 1, 1, 1)
        + 0.1 * torch.rand(n, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    )
    return x, labels


def by_brightness(x: Tensor) -> Tensor:
    return (x.mean((1, 2, 3)) > 0.5).long()


def test_accuracy_by_type_and_severity() -> None:
    x, labels = data()
    found = robustness(by_brightness, x, labels, corruptions=["brightness", "contrast", "gaussian_noise"])
    assert found.clean == 1
    assert found.severities == (1, 2, 3, 4, 5)
    assert found.accuracy["contrast"] == (1, 1, 1, 1, 1)  # keeps the mean
    assert found.accuracy["gaussian_noise"] == (1, 1, 1, 1, 1)
    assert found.accuracy["brightness"] == (1, 1, 0.5, 0.5, 0.5)  # dark ones, 0.35 at most, pass 0.5
    assert found.mean == pytest.approx((1 + 1 + 3.5 / 5) / 3)


def test_batches_and_dtypes_change_nothing() -> None:
    x, labels = data()
    pixels = (x * 255).byte()

    def fragile(x: Tensor) -> Tensor:
        """Decided by single pixels, so that another draw would show."""
        return torch.stack([x[:, 0, 3, 3], x[:, 1, 5, 2]], 1)

    kinds = ["gaussian_noise", "glass_blur", "snow", "elastic_transform"]
    whole = robustness(fragile, pixels, labels, corruptions=kinds, severities=[5])
    assert robustness(fragile, pixels, labels, corruptions=kinds, severities=[5], batch=7) == whole
    assert robustness(fragile, pixels.float() / 255, labels, corruptions=kinds, severities=[5]) == whole
    assert robustness(fragile, pixels, labels, corruptions=kinds, severities=[5], seed=1) != whole
    kinds = ["gaussian_noise", "snow", "spatter"]
    along = stability(fragile, pixels, labels, perturbations=kinds, severity=5, frames=5)
    assert stability(fragile, pixels, labels, perturbations=kinds, severity=5, frames=5, batch=7) == along
    assert stability(fragile, pixels, labels, perturbations=kinds, severity=5, frames=5, seed=1) != along


def test_mean_corruption_error() -> None:
    ours = Robustness(0.9, (1, 2), {"a": (0.8, 0.6), "b": (0.9, 0.7)})
    base = Robustness(0.8, (1, 2), {"a": (0.6, 0.4), "b": (0.4, 0.4)})
    assert ours.mean_corruption_error(base) == pytest.approx((0.6 / 1.0 + 0.4 / 1.2) / 2)
    assert ours.mean_corruption_error(base, relative=True) == pytest.approx((0.4 / 0.6 + 0.2 / 0.8) / 2)
    assert base.mean_corruption_error(base) == pytest.approx(1)
    with pytest.raises(ValueError, match="other corruptions or severities"):
        ours.mean_corruption_error(Robustness(0.8, (1,), {"a": (0.6,), "b": (0.4,)}))


def test_flip_rate_by_hand() -> None:
    predictions = torch.tensor([[0, 0, 1, 1], [2, 1, 2, 2]])
    assert flip_rate(predictions) == pytest.approx(3 / 6)
    assert flip_rate(predictions, to_first=True) == pytest.approx((2 + 1) / 6)


def test_stability_of_a_threshold() -> None:
    x = torch.full((4, 3, 16, 16), 0.5)
    labels = torch.ones(4, dtype=torch.int64)
    kinds = ["brightness", "rotate", "gaussian_noise"]
    found = stability(lambda x: (x.mean((1, 2, 3)) > 0.55).long(), x, labels, perturbations=kinds)
    assert found.clean == 0
    assert found.accuracy["brightness"] == pytest.approx(13 / 31)  # (t - 15) * 0.02 > 0.05 from t = 18 on
    assert found.flip_rate["brightness"] == pytest.approx(1 / 30)
    assert found.flip_rate["rotate"] == found.flip_rate["gaussian_noise"] == 0
    assert found.mean_flip_rate == pytest.approx(1 / 90)

    frames_seen = []

    def first_is_zero(x: Tensor) -> Tensor:
        """0 for the clean image, 1 for any other: for noise all frames flip from the first, and none from the last."""
        frames_seen.append(x)
        return ((x - 0.5).abs().amax((1, 2, 3)) > 0.001).long()

    noisy = stability(first_is_zero, x, labels, perturbations=["gaussian_noise"], frames=5)
    assert noisy.flip_rate["gaussian_noise"] == 1
    assert noisy.accuracy["gaussian_noise"] == 1  # the clean first frame does not count
    base = Stability(1.0, {"a": 0.5, "b": 0.5}, {"a": 0.2, "b": 0.1})
    assert Stability(1.0, {"a": 0.5, "b": 0.5}, {"a": 0.1, "b": 0.1}).relative_flip_rate(base) == pytest.approx(0.75)


def test_domain_shift_by_hand() -> None:
    predictions, labels = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 0, 1, 2, 2, 0])
    domain = torch.tensor([0, 0, 0, 2, 2, 2])
    found = domain_shift(predictions, labels, domain, names=["photo", "unused", "sketch"])
    assert found.accuracy == {"photo": 1.0, "sketch": pytest.approx(1 / 3)}
    assert found.count == {"photo": 3, "sketch": 3}
    assert found.worst == "sketch"
    assert found.gap == pytest.approx(2 / 3)
    assert found.mean == pytest.approx(2 / 3)


def test_bad_input_says_so() -> None:
    x, labels = data(4)
    with pytest.raises(ValueError, match=r"for 4 images it gave torch.float32 of shape"):
        robustness(lambda x: x.mean((1, 2, 3)), x, labels)
    with pytest.raises(ValueError, match="a label for each image"):
        robustness(by_brightness, x[:0], labels[:0])
    with pytest.raises(ValueError, match="one corruption or more"):
        robustness(by_brightness, x, labels, corruptions=[])
