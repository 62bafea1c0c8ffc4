"""Few-shot classification over the cached features of any encoder: Tip-Adapter, its trained form, and Meta-Adapter.

Data: a .npz with `train_features` (n, d), `train_labels` (n,), `test_features` (m, d), `test_labels` (m,) and, where
there are any, `class_features` (c, d), such as CLIP's text embeddings; without them the class embeddings are the means
of the shots.  Labels are 0, 1, ...  Without data: the pixels of scikit-learn's digits.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from numpy.typing import NDArray
from torch import Tensor, nn

from reglet.engine.settings import option
from reglet.networks.adapters import MetaAdapter, TipAdapter, TipAdapterF, class_means
from reglet.probes.check import check_features
from reglet.tasks.config import AUTO, TaskConfig
from reglet.tasks.fit import batches, fit
from reglet.tasks.task import Outcome
from reglet.types import Scalar

MODELS = ("tip-adapter", "tip-adapter-f", "meta-adapter")
NEEDED = ("train_features", "train_labels", "test_features", "test_labels")
FREE_OF_TRAINING = MODELS[0]
TEST = 500  # of the digits
# Cosines of an image with texts differ by hundredths, those with means of images by tenths: at CLIP's scale the latter
# would leave nothing to the adapter.
CLIP, MEANS = 100.0, 10.0


@dataclass(frozen=True, kw_only=True)
class FewShotConfig(TaskConfig):
    data: str = option("", f"a .npz with {', '.join(NEEDED)} and, where known, class_features; nothing: digits' pixels")
    model: str = option("tip-adapter-f", ", ".join(MODELS), *MODELS)
    shots: int = option(16, "training features of each class; which ones, the seed decides")
    alpha: float = option(1.0, "of Tip-Adapter's cache beside the class embeddings")
    beta: float = option(5.5, "how fast its cache forgets with distance")
    scale: float = option(0.0, f"of the cosines to class embeddings; 0: {CLIP:g}, CLIP's, where given, {MEANS:g} else")
    heads: int = option(1, "of Meta-Adapter's attention")
    steps: int = option(100, "optimizer steps")
    batch: int = option(256, "shots per step; Meta-Adapter takes all of them")
    out: str = option("runs/few-shot", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model not in MODELS:
            raise ValueError(f"model is one of {', '.join(MODELS)}; got {self.model!r}")
        for key in ("alpha", "beta", "scale"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"{key} cannot be negative, got {getattr(self, key)}")
        for key in ("shots", "heads"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.sim and self.model == FREE_OF_TRAINING:
            raise ValueError(f"{self.model} has nothing to train, so SIM has nothing to act on: try {self.model}-f")


class Features(NamedTuple):
    """class_features: None where the means of the shots are to serve."""

    train: Float[Tensor, "n d"]
    train_labels: Int64[Tensor, " n"]
    test: Float[Tensor, "m d"]
    test_labels: Int64[Tensor, " m"]
    class_features: Float[Tensor, "c d"] | None
    classes: int


class Shots(NamedTuple):
    x: Float[Tensor, "c k d"]
    class_features: Float[Tensor, "c d"]
    known: bool  # whether the class features are the data's own, not means of these shots

    @property
    def labels(self) -> Int64[Tensor, " m"]:
        return torch.arange(len(self.x)).repeat_interleave(self.x.shape[1])


class FewShot:
    """classify with a few features of each class, over any encoder

    accuracy: of the adapter on the test features.  head_alone: of the nearest class embedding, without an adapter.
    """

    config = FewShotConfig
    main = "accuracy"

    def load(self, config: FewShotConfig) -> Features:
        data = read(Path(config.data)) if config.data else digits()
        counts = data.train_labels.bincount(minlength=data.classes)
        few = {c: int(count) for c, count in enumerate(counts) if count < config.shots}
        if few:
            c, count = min(few.items(), key=lambda pair: pair[1])
            raise ValueError(
                f"shots={config.shots}, and {len(few)} of {data.classes} classes have fewer training features: "
                f"class {c} has {count}"
            )
        if config.model == "meta-adapter" and data.train.shape[1] % config.heads:
            raise ValueError(f"{data.train.shape[1]} features cannot be cut into heads={config.heads}")
        return data

    def train(self, config: FewShotConfig, data: Features, *, seed: int, sim: bool) -> Outcome:
        shots = draw(data, config.shots, seed=seed)
        torch.manual_seed(seed)
        inputs: tuple[Tensor, ...] = (data.test,)
        if config.model == "meta-adapter":
            network, blocks = meta(config, shots, seed=seed, sim=sim)
            inputs = (data.test, shots.class_features, shots.x)
        else:
            network, blocks = tip(config, shots, seed=seed, sim=sim)
        with torch.no_grad():
            logits: Tensor = network.eval()(*inputs)
            head = F.normalize(data.test, dim=1) @ F.normalize(shots.class_features, dim=1).T
        scores = {"accuracy": _right(logits, data.test_labels), "head_alone": _right(head, data.test_labels)}
        return Outcome(scores, network, blocks)


def tip(config: FewShotConfig, shots: Shots, *, seed: int, sim: bool) -> tuple[nn.Module, tuple[str, ...]]:
    """Tip-Adapter, with its keys trained on the shots themselves where it is the trained form."""
    kind = TipAdapter if config.model == FREE_OF_TRAINING else TipAdapterF
    x, y = shots.x.flatten(0, 1), shots.labels
    network = kind(x, y, shots.class_features, alpha=config.alpha, beta=config.beta, scale=_scale(config, shots))
    if not isinstance(network, TipAdapterF):
        return network, ()

    def loss(some: Tensor) -> Scalar:
        return F.cross_entropy(network(x[some]), y[some])

    order = batches(len(x), batch=config.batch, steps=config.steps, seed=seed)
    return network, fit(network, loss, order, config=config, blocks=_where(config, network, sim), example=x, seed=seed)


def meta(config: FewShotConfig, shots: Shots, *, seed: int, sim: bool) -> tuple[nn.Module, tuple[str, ...]]:
    """Meta-Adapter, trained in episodes: in each, half of the shots of a class are classified by the others.

    A single shot is its own support.
    """
    network = MetaAdapter(shots.x.shape[2], heads=config.heads, scale=_scale(config, shots))

    def loss(order: Tensor) -> Scalar:
        support, x, y = episode(shots, order)
        return F.cross_entropy(network(x, support.class_features, support.x), y)

    order = orders(*shots.x.shape[:2], steps=config.steps, seed=seed)
    example = (shots.x.flatten(0, 1), shots.class_features, shots.x)
    where = _where(config, network, sim)
    return network, fit(network, loss, order, config=config, blocks=where, example=example, seed=seed)


def orders(classes: int, shots: int, *, steps: int, seed: int) -> Iterator[Int64[Tensor, "c k"]]:
    """For each step the shots of every class in an order of their own."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.rand(classes, shots, generator=generator).argsort(1)


def episode(shots: Shots, order: Int[Tensor, "c k"]) -> tuple[Shots, Float[Tensor, "q d"], Int64[Tensor, " q"]]:
    """Support, and the features and labels that it is asked about: the first half of each class, in this order."""
    x = shots.x.gather(1, order[:, :, None].expand_as(shots.x))
    asked = max(1, x.shape[1] // 2)
    support = x[:, asked:] if x.shape[1] > 1 else x
    queries = x[:, :asked]
    known = shots.class_features if shots.known else _means(support)
    y = torch.arange(len(x)).repeat_interleave(asked)
    return Shots(support, known, shots.known), queries.flatten(0, 1), y


def draw(data: Features, shots: int, *, seed: int) -> Shots:
    """So many training features of each class, without replacement; fewer are the first of more."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.train), generator=generator)
    members = [order[data.train_labels[order] == c][:shots] for c in range(data.classes)]
    x = torch.stack([data.train[index] for index in members])
    given = data.class_features
    return Shots(x, _means(x) if given is None else given, given is not None)


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
    return Features(train, train_labels, test, test_labels, given, classes)


def digits() -> Features:
    """The 64 pixels of scikit-learn's digits; the last 500 test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install reglet[data]") from error
    source = load_digits()
    x, y = torch.from_numpy(source.data).float(), torch.from_numpy(source.target).long()
    return Features(x[:-TEST], y[:-TEST], x[-TEST:], y[-TEST:], None, 10)


def _means(x: Float[Tensor, "c k d"]) -> Float[Tensor, "c d"]:
    labels = torch.arange(len(x)).repeat_interleave(x.shape[1])
    return class_means(x.flatten(0, 1), labels, classes=len(x))


def _scale(config: FewShotConfig, shots: Shots) -> float:
    return config.scale or (CLIP if shots.known else MEANS)


def _where(config: FewShotConfig, network: TipAdapterF | MetaAdapter, sim: bool) -> str | list[str] | None:
    if not sim:
        return None
    return list(network.sim_blocks) if config.sim == AUTO else config.sim


def _right(logits: Float[Tensor, "m c"], labels: Int64[Tensor, " m"]) -> float:
    return float((logits.argmax(1) == labels).float().mean())


def _matrix(key: str, x: NDArray[Any]) -> Float[Tensor, "n d"]:
    if x.ndim != 2 or x.dtype.kind not in "fiu" or not x.size:
        raise ValueError(f"{key} must be numbers (n, d), got {x.dtype} of shape {x.shape}")
    tensor = torch.from_numpy(x.astype(np.float32))
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{int((~torch.isfinite(tensor)).sum())} values of {key} are not finite")
    return tensor


def _labels(key: str, y: NDArray[Any]) -> Int64[Tensor, " n"]:
    if y.dtype.kind not in "iu" or y.ndim != 1 or not y.size:
        raise ValueError(f"{key} must be whole numbers (n,), got {y.dtype} of shape {y.shape}")
    return torch.from_numpy(y.astype(np.int64))


TASK = FewShot()
