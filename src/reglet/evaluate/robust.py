"""How an encoder holds up when images are corrupted or drift: a linear probe on clean features meets the others."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reglet.data import Part
from reglet.diagnostics.robustness import Robustness, Stability, robustness, stability
from reglet.engine.run_folder import write_json
from reglet.evaluate.compute import compute
from reglet.evaluate.extract import extract, require_fit
from reglet.evaluate.labelled import labels_of
from reglet.evaluate.run import open_data, open_encoder, reading
from reglet.probes.linear import logistic_regression
from reglet.probes.standard import Standard

Json = dict[str, Any]
REPORT = "robust.json"
STRENGTH = 1e-2  # of the probe's penalty, as `linear_probe` mostly chooses


@dataclass(frozen=True)
class Robust:
    """stability: None where perturbation sequences were not asked for."""

    images: int
    corruptions: Robustness
    stability: Stability | None

    def json(self) -> Json:
        return {
            "images": self.images,
            "clean": self.corruptions.clean,
            "corrupted": self.corruptions.mean,
            "corruptions": asdict(self.corruptions),
            "perturbations": None if self.stability is None else asdict(self.stability),
        }


def robust_run(
    run: Path,
    *,
    data: str = "",
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    perturbations: bool = False,
    images: int = 1000,
    batch: int = 256,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    seed: int = 0,
    out: Path | None = None,
) -> Robust:
    """The encoder in `run` under the 15 corruptions, and along the 14 perturbations where asked for.

    A linear classifier is fitted to the clean features of the training images.  images: of the test part, at most.
    The numbers are written to robust.json in the directory, or to `out`.
    """
    where = compute(accelerator=accelerator, devices=devices, precision=precision)
    encoder, preprocess, card = open_encoder(run)
    train, test = open_data(run, data, "", "", **reading(card))
    y, y_test = labels_of(train, test)
    require_fit(encoder, train, preprocess)
    few = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))[:images].sort().values
    x = extract(encoder, train, preprocess, batch=batch, compute=where)
    standard, net = Standard(x), where.copies(encoder)[0]
    weight, bias = logistic_regression(x, y.to(x.device), strength=STRENGTH, standard=standard)

    @torch.no_grad()
    def predict(pictures: Tensor) -> Tensor:
        pixels = (pictures * 255).round().to(torch.uint8)
        with where.mixed():
            z = net(where.cast(preprocess(where.take(pixels)))).float()
        return F.linear(standard(z).to(weight.dtype), weight, bias)

    chosen = Part(test, few, name=f"{len(few)} of {len(test)}")
    pictures, truth = where.take(chosen.batch(torch.arange(len(few)))), y_test[few].to(where.place)
    found = Robust(
        len(few),
        robustness(predict, pictures, truth, severities=severities, seed=seed, batch=batch),
        stability(predict, pictures, truth, seed=seed, batch=batch) if perturbations else None,
    )
    write_json(out or run / REPORT, found.json())
    return found
