"""Cached features of an encoder, and the few of each class that an adapter may see.

Data: a .npz with `train_features` (n, d), `train_labels` (n,), `test_features` (m, d), `test_labels` (m,) and, where
there are any, `class_features` (c, d), such as CLIP's text embeddings; without them the class embeddings are the means
of the shots.  `train_views` (n, a, d) are features of a augmented views of each training image: Tip-Adapter-F is then
trained on the views of its shots, where it would otherwise see the very keys of its cache.  Labels are 0, 1, ...
Without data: the pixels of scikit-learn's digits.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from reglet.networks.adapters import class_means
from reglet.probes.check import check_features

NEEDED = ("train_features", "train_labels", "test_features", "test_labels")
TEST = 500  # of the digits


class Features(NamedTuple):
    """class_features: None where the means of the shots are to serve.  views: None where there are none."""

    train: Float[Tensor, "n d"]
    train_labels: Int64[Tensor, " n"]
    test: Float[Tensor, "m d"]
    test_labels: Int64[Tensor, " m"]
    class_features: Float[Tensor, "c d"] | None
    classes: int
    views: Float[Tensor, "n a d"] | None = None


class Shots(NamedTuple):
    x: Float[Tensor, "c k d"]
    class_features: Float[Tensor, "c d"]
    known: bool  # whether the class features are the data's own, not means of these shots
    views: Float[Tensor, "c k a d"] | None = None

    @property
    def labels(self) -> Int64[Tensor, " m"]:
        return torch.arange(len(self.x)).repeat_interleave(self.x.shape[1])


def episode(shots: Shots, order: Int[Tensor, "c k"]) -> tuple[Shots, Float[Tensor, "q d"], Int64[Tensor, " q"]]:
    """Support, and the features and labels that it is asked about: the first half of each class, in this order."""
    x = shots.x.gather(1, order[:, :, None].expand_as(shots.x))
    asked = max(1, x.shape[1] // 2)
    support = x[:, asked:] if x.shape[1] > 1 else x
    queries = x[:, :asked]
    known = shots.class_features if shots.known else means(support)
    y = torch.arange(len(x)).repeat_interleave(asked)
    return Shots(support, known, shots.known), queries.flatten(0, 1), y


def draw(data: Features, shots: int, *, seed: int) -> Shots:
    """So many training features of each class, without replacement; fewer are the first of more."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.train), generator=generator)
    members = [order[data.train_labels[order] == c][:shots] for c in range(data.classes)]
    x = torch.stack([data.train[index] for index in members])
    given = data.class_features
    views = None if data.views is None else torch.stack([data.views[index] for index in members])
    return Shots(x, means(x) if given is None else given, given is not None, views)


def means(x: Float[Tensor, "c k d"]) -> Float[Tensor, "c d"]:
    labels = torch.arange(len(x)).repeat_interleave(x.shape[1])
    return class_means(x.flatten(0, 1), labels, classes=len(x))


def read(path: Path) -> Features:
    """The archive, checked."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            found: dict[str, NDArray[Any]] = {key: archive[key] for key in archive.files}
    except Exception as error:
        raise ValueError(f"{path} is no .npz archive of plain arrays: {error}") from error
    if missing := [key for key in NEEDED if key not in found]:
        raise ValueError(f"{path} has {', '.join(found) or 'nothing'}; it lacks {', '.join(missing)}")
    train, test = (_matrix(key, found[key]) for key in ("train_features", "test_features"))
    train_labels, test_labels = (_labels(key, found[key]) for key in ("train_labels", "test_labels"))
    check_features(train, train_labels, test)
    if len(test_labels) != len(test):
        raise ValueError(f"there are {len(test)} test features and {len(test_labels)} test labels")
    given = _matrix("class_features", found["class_features"]) if "class_features" in found else None
    classes = int(train_labels.max()) + 1
    if given is not None and given.shape != (classes, train.shape[1]):
        raise ValueError(
            f"class_features of {classes} classes are ({classes}, {train.shape[1]}) like the features, "
            f"got {tuple(given.shape)}"
        )
    if not 0 <= int(test_labels.min()) <= int(test_labels.max()) < classes:
        raise ValueError(
            f"test labels are those of training, 0 to {classes - 1}; "
            f"got {int(test_labels.min())} to {int(test_labels.max())}"
        )
    views = _views(found["train_views"], train) if "train_views" in found else None
    return Features(train, train_labels, test, test_labels, given, classes, views)


def digits() -> Features:
    """The 64 pixels of scikit-learn's digits; the last 500 test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install reglet[data]") from error
    source = load_digits()
    x, y = torch.from_numpy(source.data).float(), torch.from_numpy(source.target).long()
    return Features(x[:-TEST], y[:-TEST], x[-TEST:], y[-TEST:], None, 10)


def _matrix(key: str, x: NDArray[Any]) -> Float[Tensor, "n d"]:
    if x.ndim != 2 or x.dtype.kind not in "fiu" or not x.size:
        raise ValueError(f"{key} must be numbers (n, d), got {x.dtype} of shape {x.shape}")
    tensor = torch.from_numpy(x.astype(np.float32))
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{int((~torch.isfinite(tensor)).sum())} values of {key} are not finite")
    return tensor


def _views(x: NDArray[Any], train: Tensor) -> Float[Tensor, "n a d"]:
    if x.ndim != 3 or not x.size or (x.shape[0], x.shape[2]) != tuple(train.shape):
        raise ValueError(f"train_views are (n, views, d) of the train_features {tuple(train.shape)}, got {x.shape}")
    return _matrix("train_views", x.reshape(-1, x.shape[2])).view(x.shape)


def _labels(key: str, y: NDArray[Any]) -> Int64[Tensor, " n"]:
    if y.dtype.kind not in "iu" or y.ndim != 1 or not y.size:
        raise ValueError(f"{key} must be whole numbers (n,), got {y.dtype} of shape {y.shape}")
    return torch.from_numpy(y.astype(np.int64))
