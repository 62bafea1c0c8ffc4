"""Features of every image of a data set, as a file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from reglet.data import Images, load
from reglet.evaluate.columns import require_suffix, write_columns
from reglet.evaluate.compute import compute
from reglet.evaluate.extract import extract, require_fit
from reglet.evaluate.run import open_encoder, reading


def embed(
    run: Path,
    spec: str,
    out: Path,
    *,
    split: str = "",
    batch: int = 256,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    says: Callable[[str], None] = print,
) -> tuple[int, int]:
    """Features by the encoder in `run` of the data `spec`, to a .csv, .npz or .parquet file.  Gives their shape.

    Beside them stand the names of files, labels and domains, where the data have them.  A file that cannot be read has
    no row; `says` hears of it.
    """
    require_suffix(out)
    encoder, preprocess, card = open_encoder(run)
    images = load(spec, split=split, once=True, **reading(card))
    where = compute(accelerator=accelerator, devices=devices, precision=precision)
    require_fit(encoder, images, preprocess)
    x = extract(encoder, images, preprocess, batch=batch, compute=where).cpu()
    fine = readable(images, says=says)
    names = images.names(fine)
    columns = {} if names is None else {"file_name": np.array(names)}
    columns["features"] = x[fine].numpy()
    if images.labels is not None and images.classes is not None:
        columns |= {"labels": images.labels[fine].numpy(), "class": np.array(images.classes)[images.labels[fine]]}
    if images.domain is not None and images.domains is not None:
        columns |= {"domain": images.domain[fine].numpy(), "domain_name": np.array(images.domains)[images.domain[fine]]}
    write_columns(out, columns)
    return len(fine), x.shape[1]


def readable(images: Images, *, says: Callable[[str], None]) -> torch.Tensor:
    """The indices of the images that could be read, once all were asked for; `says` hears of the others."""
    every = torch.arange(len(images))
    reasons: dict[str, str] = getattr(getattr(images, "unreadable", None), "reasons", {})
    if not reasons:
        return every
    for name, reason in reasons.items():
        says(f"cannot be read, and is left out: {name} ({reason})")
    names = images.names(every) or []
    return every[torch.tensor([name not in reasons for name in names])]
