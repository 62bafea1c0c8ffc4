"""Features of every image of a data set, as a file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reglet.data import Images
from reglet.data.hold_out import held_out
from reglet.data.load import TEST, splits
from reglet.evaluate.columns import Column, require_suffix, write_columns
from reglet.evaluate.compute import compute
from reglet.evaluate.extract import extract, require_fit
from reglet.evaluate.source import open_source


def embed(
    run: str | Path,
    spec: str,
    out: Path,
    *,
    split: str = "",
    batch: int = 256,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    pretrained: bool = True,
    size: int = 0,
    says: Callable[[str], None] = print,
) -> tuple[int, int]:
    """Write features of the data `spec` by the encoder `run` to a .csv, .npz or .parquet file.  Returns their shape.

    run: the directory of a run or of an exported encoder, timm/NAME, or anything else that `open_source` takes;
        `pretrained` and `size` go there, too.
    split: a part of the data, or several with commas between them.
    The file also has names of files, labels and domains, if the data have them, and `split`: the part of each image.
    If the data have no parts, `split` says whether `reglet eval` trains or tests on the image.
    A file that cannot be read has no row; `says` is told its name.
    """
    require_suffix(out)
    encoder = open_source(run, pretrained=pretrained, size=size)
    encoder.require_network("embed")
    if encoder.folder is None:
        says(encoder.introduction())
    where = compute(accelerator=accelerator, devices=devices, precision=precision)
    rows: list[dict[str, Column]] = []
    for part in parts_of(spec, split):
        images = encoder.open(spec, split=part)
        require_fit(encoder.net, images, encoder.prepare)
        x = extract(encoder.net, images, encoder.prepare, batch=batch, compute=where).cpu()
        fine = readable(images, says=says)
        rows.append(_columns(images, x, fine))
        cut = np.array([part] * len(fine)) if part else _cut(images, fine)
        if cut is not None:
            rows[-1]["split"] = cut
    columns = _joined(rows)
    write_columns(out, columns)
    n, d = columns["features"].shape
    return n, d


def parts_of(spec: str, split: str) -> list[str]:
    """The parts to be read: those that are named, or where there are a training and a test part and no other image,
    both; "" stands for all images."""
    if split:
        return split.split(",")
    own = splits(spec)
    test = [name for name in TEST if name in own]
    return ["train", test[0]] if sorted(own) == sorted(["train", *test[:1]]) and test else [""]


def _columns(images: Images, x: Tensor, fine: Tensor) -> dict[str, Column]:
    names = images.names(fine)
    columns: dict[str, Column] = {} if names is None else {"file_name": np.array(names)}
    columns["features"] = x[fine].numpy()
    if images.labels is not None and images.classes is not None:
        columns |= {"labels": images.labels[fine].numpy(), "class": np.array(images.classes)[images.labels[fine]]}
    if images.domain is not None and images.domains is not None:
        columns |= {"domain": images.domain[fine].numpy(), "domain_name": np.array(images.domains)[images.domain[fine]]}
    return columns


def _cut(images: Images, fine: Tensor) -> Column | None:
    """Which images are for training and which for the test, where the data do not say it; a copy is for neither."""
    if images.labels is None:
        return None
    inside, outside = held_out(images)
    words = np.full(len(images), "", dtype="<U5")
    words[inside.numpy()], words[outside.numpy()] = "train", "test"
    return words[fine.numpy()]


def _joined(parts: list[dict[str, Column]]) -> dict[str, Column]:
    """The rows of all parts, one after the other, with classes and domains numbered alike."""
    if len(parts) == 1:
        return parts[0]
    common = [name for name in parts[0] if all(name in part for part in parts)]
    found = {name: np.concatenate([part[name] for part in parts]) for name in common}
    for numbers, words in (("labels", "class"), ("domain", "domain_name")):
        if numbers in found:
            first = parts[0]
            known = dict(zip(first[words].tolist(), first[numbers].tolist(), strict=True))
            for word in found[words].tolist():
                known.setdefault(word, max(known.values()) + 1)
            found[numbers] = np.array([known[word] for word in found[words].tolist()])
    return found


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
