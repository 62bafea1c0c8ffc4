"""How robust an encoder is: a linear probe, trained on clean features, is tested on corrupted or drifting images."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from reglet.data import Images, Part
from reglet.diagnostics.robustness import Robustness, Stability, robustness, stability
from reglet.evaluate.compute import Compute
from reglet.evaluate.extract import CPU, extract, require_fit
from reglet.evaluate.labelled import labels_of
from reglet.evaluate.source import Encoder
from reglet.probes.linear import logistic_regression
from reglet.probes.standard import Standard

Json = dict[str, Any]
REPORT = "robust.json"
STRENGTH = 1e-2  # of the probe's penalty, as `linear_probe` mostly chooses


@dataclass(frozen=True)
class Robust:
    """stability: None unless perturbation sequences were asked for.

    right: whether each test image is classified correctly when it is clean.
    by_image: for each test image, the share of corruptions and severities under which it is classified correctly.
    """

    images: int
    corruptions: Robustness
    stability: Stability | None
    right: Bool[Tensor, " n"]
    by_image: Float[Tensor, " n"]

    def json(self) -> Json:
        return {
            "images": self.images,
            "clean": self.corruptions.clean,
            "corrupted": self.corruptions.mean,
            "corruptions": asdict(self.corruptions),
            "perturbations": None if self.stability is None else asdict(self.stability),
        }


def robust_encoder(
    encoder: Encoder,
    train: Images,
    test: Images,
    *,
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    perturbations: bool = False,
    images: int = 1000,
    batch: int = 256,
    compute: Compute = CPU,
    seed: int = 0,
) -> Robust:
    """Test the encoder under the 15 corruptions and, if asked for, along the 14 perturbations.

    A linear classifier is fitted to the clean features of the training images.  images: of the test part, at most.
    """
    net, preprocess = encoder.net, encoder.prepare
    y, y_test = labels_of(train, test)
    require_fit(net, train, preprocess)
    few = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))[:images].sort().values
    x = extract(net, train, preprocess, batch=batch, compute=compute)
    standard, net = Standard(x), compute.copies(net)[0]
    weight, bias = logistic_regression(x, y.to(x.device), strength=STRENGTH, standard=standard)
    guesses: list[Tensor] = []  # in the order in which `robustness` asks: clean, then each corruption at each severity

    @torch.no_grad()
    def predict(pictures: Tensor) -> Tensor:
        pixels = (pictures * 255).round().to(torch.uint8)
        with compute.mixed():
            z = net(compute.cast(preprocess(compute.take(pixels)))).float()
        logits = F.linear(standard(z).to(weight.dtype), weight, bias)
        guesses.append(logits.argmax(1).cpu())
        return logits

    chosen = Part(test, few, name=f"{len(few)} of {len(test)}")
    pictures, truth = compute.take(chosen.batch(torch.arange(len(few)))), y_test[few]
    there = truth.to(compute.place)
    found = robustness(predict, pictures, there, severities=severities, seed=seed, batch=batch)
    right = torch.cat(guesses).view(-1, len(few)) == truth
    steady = stability(predict, pictures, there, seed=seed, batch=batch) if perturbations else None
    return Robust(len(few), found, steady, right[0], right[1:].double().mean(0))
