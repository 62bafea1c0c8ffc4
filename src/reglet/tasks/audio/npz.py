"""Log-mel clips from a .npz archive."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

KEYS = "features (n, mels, frames) or images (n, mels, frames, 1), labels (n,), and split or fold (n,)"


def read_npz(path: Path, *, fold: int) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """Clips, labels, whether each is tested, and the names of the classes.

    features: float (n, mels, frames).  images: the same as uint8 with an axis of one channel, 0 and 255 being the two
    values of db_range where that is given.  labels: numbers or names.  split: 0 or "train", 1 or "test".
    """
    known = _read(path)
    x = _features(path, known)
    names, y = np.unique(known["labels"], return_inverse=True)
    if "classes" in known and known["labels"].dtype.kind in "ui" and int(names.max()) < len(known["classes"]):
        names, y = known["classes"], known["labels"]
    tested = _tested(path, known, fold)
    for key, column in (("labels", y), ("fold" if fold else "split", tested)):
        if column.shape != (len(x),):
            raise ValueError(f"{path} has {len(x)} clips, and {key} of shape {column.shape}")
    return x, torch.from_numpy(y.astype(np.int64)), torch.from_numpy(tested), tuple(str(name) for name in names)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            known = {key: archive[key] for key in archive.files}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}") from error
    if not {"features", "images"} & known.keys() or "labels" not in known:
        raise ValueError(f"{path} has {', '.join(known) or 'nothing'}; expected {KEYS}")
    return known


def _features(path: Path, known: dict[str, NDArray[Any]]) -> Tensor:
    x = known["features"] if "features" in known else known["images"]
    if x.ndim == 4 and x.shape[3] == 1:
        x = x[..., 0]
    if x.ndim != 3 or 0 in x.shape:
        raise ValueError(f"{path} has clips of shape {x.shape}; expected (n, mels, frames)")
    values = torch.from_numpy(np.ascontiguousarray(x)).float()
    if x.dtype == np.uint8 and "db_range" in known:
        low, high = known["db_range"].tolist()
        return low + values / 255 * (high - low)
    return values


def _tested(path: Path, known: dict[str, NDArray[Any]], fold: int) -> NDArray[np.bool_]:
    if fold:
        if "fold" not in known:
            raise ValueError(f"fold={fold} was asked for, and {path} has no folds")
        if not bool((tested := known["fold"] == fold).any()):
            have = ", ".join(str(f) for f in np.unique(known["fold"]))
            raise ValueError(f"there is no fold {fold} in {path}; there are {have}")
        return np.asarray(tested)
    if "split" not in known:
        folds = (
            f"folds {', '.join(map(str, np.unique(known['fold'])))}: say fold=" if "fold" in known else "no fold either"
        )
        raise ValueError(f"{path} has no split to train and test by, and {folds}")
    split = known["split"]
    return np.asarray(split == ("test" if split.dtype.kind == "U" else 1))
