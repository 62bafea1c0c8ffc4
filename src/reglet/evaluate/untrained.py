"""The scores of the same probes without training: on random weights, and on raw pixels.

A score means little without these two beside it.  They are computed once, and kept in the directory of the run.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from reglet import progress
from reglet.data import Images
from reglet.engine.run_folder import write_json
from reglet.evaluate.compute import Compute
from reglet.evaluate.extract import CPU, extract
from reglet.evaluate.labelled import at_most, labels_of
from reglet.evaluate.probing import ProbeData, score

Json = dict[str, Any]
Rows = dict[str, dict[str, Json]]  # what was probed -> probe -> accuracy and interval
FILE = "untrained.json"
SIDE = 16  # pixels: a linear probe of more would take longer than the training of a small network
MOST = 20_000  # training images
PIXELS = f"raw pixels, {SIDE} x {SIDE}"
RANDOM = "random weights"


def untrained(
    encoders: Mapping[str, nn.Module],
    train: Images,
    test: Images,
    preprocess: Callable[[Tensor], Tensor],
    *,
    about: Json,
    folder: Path | None = None,
    probes: Sequence[str] = ("knn", "linear"),
    compute: Compute = CPU,
    batch: int = 256,
    seed: int = 0,
) -> Rows:
    """Accuracies of `probes` on the features of each of `encoders`, and on the pixels.

    about: what the encoders depend on.  folder: where accuracies are kept, and looked for.
    """
    train = at_most(train, MOST)
    depends = {"train": train.fingerprint, "test": test.fingerprint, "seed": seed, **about}
    key = hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode()).hexdigest()[:16]
    kept = _read(folder)
    rows: Rows = kept.setdefault(key, {})
    new = False
    for name, encoder in {**encoders, PIXELS: Pixels()}.items():
        row = rows.setdefault(name, {})
        if missing := [probe for probe in probes if probe not in row]:
            new = True
            with progress.work(f"for comparison: {name}"):
                row |= _probed(
                    encoder, train, test, preprocess, probes=missing, compute=compute, batch=batch, seed=seed
                )
    if folder is not None and new:
        write_json(folder / FILE, kept)
    return {name: {probe: row[probe] for probe in probes} for name, row in rows.items()}


class Pixels(nn.Module):
    """The image itself, small."""

    def forward(self, x: Tensor) -> Tensor:
        side = min(SIDE, *x.shape[2:])
        return F.interpolate(x, (side, side), mode="bilinear", antialias=True, align_corners=False).flatten(1)


def _probed(
    encoder: nn.Module,
    train: Images,
    test: Images,
    preprocess: Callable[[Tensor], Tensor],
    *,
    probes: Sequence[str],
    compute: Compute,
    batch: int,
    seed: int,
) -> dict[str, Json]:
    x, x_test = (extract(encoder, images, preprocess, compute=compute, batch=batch) for images in (train, test))
    y, y_test = (labels.to(x.device) for labels in labels_of(train, test))
    numbers, _ = score(ProbeData(x, y, x_test, y_test, x, x_test, seed), probes, test=test)
    return {name: {key: row[key] for key in ("accuracy", "interval") if key in row} for name, row in numbers.items()}


def _read(folder: Path | None) -> dict[str, Rows]:
    try:
        kept: dict[str, Rows] = json.loads((folder / FILE).read_text()) if folder is not None else {}
    except (OSError, json.JSONDecodeError):
        return {}
    return kept
