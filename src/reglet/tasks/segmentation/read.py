"""A user's own images and masks: a .npz, or a folder."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from reglet.data.npz import load_npz
from reglet.data.walk import SUFFIXES
from reglet.tasks.segmentation.data import Raw, check_size

PARTS = {"0": "train", "1": "test", "train": "train", "test": "test"}


def read(path: Path) -> Raw:
    if path.is_dir():
        return read_folder(path)
    if path.suffix == ".npz" and path.exists():
        return read_npz(path)
    raise ValueError(f"expected a .npz archive or a folder with images/ and masks/; {path} is neither")


def read_npz(path: Path) -> Raw:
    """`images` as in `reglet.data.load_npz`, `masks` (n, h, w) of uint8 and, where known, `fov` like the masks, `split`
    (train and test, or 0 and 1), `domain` (words, or numbers into `domains`)."""
    source = load_npz(path)
    with np.load(path, allow_pickle=False) as archive:
        known = {key: archive[key] for key in ("masks", "fov", "split", "domains") if key in archive.files}
    if "masks" not in known:
        raise ValueError(f"{path} has no masks; expected images, masks, and where known fov, split, domain")
    maps = {key: _bytes(known[key], what=f"{path}: {key}") for key in ("masks", "fov") if key in known}
    for key, values in maps.items():
        if values.shape != (len(source), *source.images.shape[2:]):
            wanted = (len(source), *source.images.shape[2:])
            raise ValueError(f"{path}: {key} must be of shape {wanted}, as the images are; got {tuple(values.shape)}")
    domain = None
    if source.domain is not None:
        names = known["domains"].astype(str).tolist() if "domains" in known else source.domains or []
        if int(source.domain.max()) >= len(names):
            raise ValueError(f"{path}: domain reaches {int(source.domain.max())}, domains has {len(names)} names")
        domain = [names[i] for i in source.domain.tolist()]
    fov = list(maps["fov"]) if "fov" in maps else None
    return Raw(list(source.images), list(maps["masks"]), fov, _parts(path, known, len(source)), domain)


def _bytes(values: NDArray[Any], *, what: str) -> UInt8[Tensor, "..."]:
    whole = values.dtype.kind in "iub"
    if not whole or (values.size and not 0 <= int(values.min()) <= int(values.max()) <= 255):
        raise ValueError(f"{what} must hold whole numbers from 0 to 255, got {values.dtype}")
    return torch.from_numpy(np.ascontiguousarray(values.astype(np.uint8)))


def _parts(path: Path, known: dict[str, NDArray[Any]], n: int) -> list[str] | None:
    if "split" not in known:
        return None
    names = known["split"].astype(str).tolist()
    if len(names) != n or not set(names) <= set(PARTS):
        raise ValueError(
            f"{path}: split must say train or test (0 or 1) for each of {n} images; "
            f"it has {len(names)} entries, {', '.join(sorted(set(names))[:5])}"
        )
    return [PARTS[name] for name in names]


def read_folder(root: Path) -> Raw:
    """images/NAME and masks/NAME, where known fov/NAME; suffixes may differ.  Names that begin with train/ or test/ say
    which part they are of."""
    files = {kind: _named(root / kind) for kind in ("images", "masks", "fov") if (root / kind).is_dir()}
    for kind in ("images", "masks"):
        if not files.get(kind):
            raise ValueError(f"expected images in {root / kind}, in files that end in {', '.join(sorted(SUFFIXES))}")
    names = list(files["images"])
    for kind, found in files.items():
        odd = sorted(files["images"].keys() ^ found.keys())
        if odd:
            raise ValueError(f"images/ and {kind}/ must have equal names; only one of them has {', '.join(odd[:5])}")
    images = [_decode(files["images"][name], mode="RGB").permute(2, 0, 1).contiguous() for name in names]
    maps = {kind: [_decode(files[kind][name], mode="") for name in names] for kind in files if kind != "images"}
    for kind, masks in maps.items():
        for name, image, mask in zip(names, images, masks, strict=True):
            check_size(image, mask, what=f"{kind}/{name}")
    first = {Path(name).parts[0] for name in names if len(Path(name).parts) > 1}
    split = [Path(name).parts[0] for name in names] if first == {"train", "test"} else None
    return Raw(images, maps["masks"], maps.get("fov"), split)


def _named(folder: Path) -> dict[str, Path]:
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}


def _decode(path: Path, *, mode: str) -> UInt8[Tensor, "..."]:
    from PIL import Image

    try:
        with Image.open(path) as file:
            values = np.array(file.convert(mode) if mode else file)
    except OSError as error:
        raise ValueError(f"{path} cannot be read as an image: {error}") from error
    if not mode and values.ndim != 2:
        raise ValueError(f"{path} has {values.shape[-1]} channels; a mask has one, with a class number in each pixel")
    return _bytes(values, what=str(path))
