"""Accuracy under corruptions and along perturbation sequences, beside the clean accuracy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reglet import progress
from reglet.diagnostics.robustness.corruptions import CORRUPTIONS, SEVERITIES, as_floats, corrupt
from reglet.diagnostics.robustness.perturbations import NOISES, PERTURBATIONS, frames_of

Predict = Callable[[Float[Tensor, "n c h w"]], Tensor]  # images in [0, 1] -> logits (n, classes), or class numbers (n)


@dataclass(frozen=True)
class Robustness:
    """accuracy: corruption -> accuracy at each severity."""

    clean: float
    severities: tuple[int, ...]
    accuracy: dict[str, tuple[float, ...]]

    @property
    def mean(self) -> float:
        """The mean over corruptions and severities, as in SER's tables."""
        return sum(map(_mean, self.accuracy.values())) / len(self.accuracy)

    def mean_corruption_error(self, baseline: "Robustness", *, relative: bool = False) -> float:
        """mean over corruptions of sum_s E_s / sum_s E^baseline_s; ImageNet-C's baseline is AlexNet.

        relative: replace E_s by its excess over the clean error.
        """
        if self.severities != baseline.severities or self.accuracy.keys() != baseline.accuracy.keys():
            raise ValueError("the baseline was measured on other corruptions or severities")
        ratios = [
            (1 - _mean(own) - relative * (1 - self.clean))
            / (1 - _mean(baseline.accuracy[name]) - relative * (1 - baseline.clean))
            for name, own in self.accuracy.items()
        ]
        return _mean(ratios)


def robustness(
    predict: Predict,
    images: Tensor,
    labels: Int[Tensor, " n"],
    *,
    corruptions: Sequence[str] = tuple(CORRUPTIONS),
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    batch: int = 256,
) -> Robustness:
    """`predict`'s accuracy on `images` (uint8, or floats in [0, 1]), clean and under each corruption.

    The corruption of an image depends on its place in `images` and the seed, not on the batch.
    """
    _check(images, labels, corruptions, severities)
    truth = labels.cpu()

    def accuracy(change: Callable[[Tensor, Tensor], Tensor]) -> float:
        parts = torch.arange(len(images)).split(batch)
        right = [classes(predict, change(images[i.to(images.device)], i)) == truth[i] for i in parts]
        return float(torch.cat(right).double().mean())

    clean = accuracy(lambda x, i: as_floats(x))
    found: dict[str, tuple[float, ...]] = {}
    for name in progress.track(corruptions, "corruptions"):
        found[name] = tuple(
            accuracy(lambda x, i, name=name, s=s: corrupt(x, name, severity=s, seed=seed, index=i))  # type: ignore[misc]
            for s in severities
        )
    return Robustness(clean, tuple(severities), found)


def correct_under_corruption(
    predict: Predict,
    images: Tensor,
    labels: Int[Tensor, " n"],
    *,
    corruptions: Sequence[str] = tuple(CORRUPTIONS),
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    batch: int = 256,
) -> Float[Tensor, " n"]:
    """The share of corruptions and severities under which `predict` is right, for each image.

    >>> images, labels = torch.zeros(4, 3, 8, 8), torch.tensor([0, 0, 1, 1])
    >>> always_one = lambda x: torch.ones(len(x), dtype=torch.int64)
    >>> correct_under_corruption(always_one, images, labels, corruptions=["contrast"], severities=[3]).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    _check(images, labels, corruptions, severities)
    truth, right = labels.cpu(), torch.zeros(len(images), dtype=torch.float64)
    for name in progress.track(corruptions, "corruptions"):
        for severity in severities:
            for i in torch.arange(len(images)).split(batch):
                x = corrupt(images[i.to(images.device)], name, severity=severity, seed=seed, index=i)
                right[i] += classes(predict, x) == truth[i]
    return right / (len(corruptions) * len(severities))


@dataclass(frozen=True)
class Stability:
    """accuracy: perturbation -> accuracy over all frames, without the clean first frame of noises (as in SER's tables).

    flip_rate: how often the prediction differs from that of the frame before; for noises, from that of the clean image.
    """

    clean: float
    accuracy: dict[str, float]
    flip_rate: dict[str, float]

    @property
    def mean_flip_rate(self) -> float:
        return _mean(list(self.flip_rate.values()))

    def relative_flip_rate(self, baseline: "Stability") -> float:
        """mean over perturbations of flip rate / baseline's; ImageNet-P's mFR has AlexNet for baseline."""
        if self.flip_rate.keys() != baseline.flip_rate.keys():
            raise ValueError("the baseline was measured on other perturbations")
        return _mean([rate / baseline.flip_rate[name] for name, rate in self.flip_rate.items()])


def stability(
    predict: Predict,
    images: Tensor,
    labels: Int[Tensor, " n"],
    *,
    perturbations: Sequence[str] = tuple(PERTURBATIONS),
    frames: int = 31,
    severity: int = 1,
    seed: int = 0,
    batch: int = 256,
) -> Stability:
    """Predictions along the sequences of `perturbations.py`."""
    _check(images, labels, perturbations, (severity,))
    parts, truth = torch.arange(len(images)).split(batch), labels.cpu()
    clean = torch.cat([classes(predict, as_floats(images[i.to(images.device)])) for i in parts])
    accuracy, flips = {}, {}

    def along(name: str, i: Tensor) -> Tensor:
        sequence = frames_of(images[i.to(images.device)], name, frames=frames, severity=severity, seed=seed, index=i)
        return torch.stack([classes(predict, frame) for frame in sequence], 1)

    for name in progress.track(perturbations, "perturbations"):
        seen = torch.cat([along(name, i) for i in parts])
        kept = seen[:, 1:] if name in NOISES else seen
        accuracy[name] = float((kept == truth[:, None]).double().mean())
        flips[name] = flip_rate(seen, to_first=name in NOISES)
    return Stability(float((clean == truth).double().mean()), accuracy, flips)


def flip_rate(predictions: Int[Tensor, "n frames"], *, to_first: bool = False) -> float:
    """How often a frame's class differs from that of the frame before, or of the first.

    >>> flip_rate(torch.tensor([[1, 1, 2, 1]])), flip_rate(torch.tensor([[1, 1, 2, 1]]), to_first=True)
    (0.6666666666666666, 0.3333333333333333)
    """
    before = predictions[:, :1] if to_first else predictions[:, :-1]
    return float((predictions[:, 1:] != before).cpu().double().mean())


@torch.no_grad()
def classes(predict: Predict, x: Float[Tensor, "n c h w"]) -> Int[Tensor, " n"]:
    out = predict(x)
    if len(out) != len(x) or out.ndim not in (1, 2) or (out.ndim == 1 and out.is_floating_point()):
        raise ValueError(
            f"predict gives logits (n, classes) or class numbers (n); for {len(x)} images it gave {out.dtype} of shape "
            f"{tuple(out.shape)}"
        )
    return (out.argmax(1) if out.ndim == 2 else out).cpu()


def _check(images: Tensor, labels: Tensor, names: Sequence[str], severities: Sequence[int]) -> None:
    if len(images) != len(labels) or not len(images):
        raise ValueError(f"expected a label for each image, and one at least; got {len(images)} and {len(labels)}")
    if not names or not severities:
        raise ValueError("expected one corruption or more, and one severity or more")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
