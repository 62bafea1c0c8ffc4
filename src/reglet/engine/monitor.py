"""Scores during training and at its end.

They are computed through the module that trains, so its precision and sharding hold for them too.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int64
from torch import Tensor

from reglet.data.images import Images
from reglet.data.splits import some_of_each
from reglet.diagnostics import alpha_req, lidar, rankme
from reglet.engine.best import LABEL_FREE
from reglet.engine.feed import ViewPolicy
from reglet.method import Method, innermost
from reglet.probes.knn import knn_probe

EACH = 10  # training images of each class, at least

Scores = dict[str, float]


@runtime_checkable
class Trained(Protocol):
    """A network in training, as a score sees it.  If its weights are sharded, all ranks must call it."""

    @property
    def device(self) -> torch.device: ...

    def evaluating(self) -> AbstractContextManager[None]:
        """Eval mode without gradients; afterwards the old mode is restored."""
        ...

    def call(self, act: Callable[[Method, Tensor], Tensor], x: Tensor) -> Tensor:
        """`act(method, x)` on the training device, in the precision of training, as float32."""
        ...


class Untrained:
    """A method as it is, for scores that need no training."""

    def __init__(self, method: Method, device: torch.device) -> None:
        self.method, self.device = method.to(device), device

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        mode = self.method.training
        try:
            self.method.eval()
            with torch.no_grad():
                yield
        finally:
            self.method.train(mode)

    def call(self, act: Callable[[Method, Tensor], Tensor], x: Tensor) -> Tensor:
        return act(self.method, x.to(self.device)).float()


@runtime_checkable
class Monitor(Protocol):
    def due(self, done: int, *, steps: int, per_epoch: int) -> bool:
        """Whether to score after step `done` of `steps`."""
        ...

    def score(self, model: Trained) -> Scores: ...


class AtEnd:
    """A score of the finished network.

    >>> AtEnd(lambda model: {}).due(3, steps=3, per_epoch=1)
    True
    """

    def __init__(self, scores: Callable[[Trained], Scores]) -> None:
        self.scores = scores

    def due(self, done: int, *, steps: int, per_epoch: int) -> bool:
        return done == steps

    def score(self, model: Trained) -> Scores:
        with model.evaluating():
            return self.scores(model)


class AtCheckpoints(AtEnd):
    """The same score at `count` equally spaced steps.  Its names end in "@1", "@2", ..., "@count"."""

    def __init__(self, scores: Callable[[Trained], Scores], *, count: int) -> None:
        super().__init__(scores)
        self.count, self.at = count, 0

    def due(self, done: int, *, steps: int, per_epoch: int) -> bool:
        places = [round((i + 1) * steps / self.count) for i in range(self.count)]
        self.at = places.index(done) + 1 if done in places else 0
        return done in places

    def score(self, model: Trained) -> Scores:
        return {f"{name}@{self.at}": value for name, value in super().score(model).items()}


class OnlineKNN:
    """The accuracy of a weighted kNN on the features of a few thousand images, and the rank of these features.

    Neighbours are training images.  The images of `test`, which were not trained on, are classified.
    prepare: uint8 images -> what the encoder takes.
    most: the most images of each part, but at least EACH of every class.  `says` reports classes that have fewer,
        because their score means little.
    """

    def __init__(
        self,
        train: Images,
        prepare: Callable[[Tensor], Tensor],
        *,
        test: Images,
        most: int = 2000,
        every: int = 1,
        says: Callable[[str], None] = print,
    ) -> None:
        if train.labels is None or test.labels is None:
            raise ValueError("an online kNN needs labels")
        chosen, classes = some_of_each(train.labels, most, each=EACH), len(train.classes or ())
        few = int(train.labels[chosen].bincount(minlength=classes).lt(EACH).sum())
        if few:
            says(f"online kNN: {few} of {classes} classes have fewer than {EACH} training images")
        self.parts = [(train, chosen), (test, some_of_each(test.labels, most, each=1))]
        self.prepare, self.every = prepare, every

    def due(self, done: int, *, steps: int, per_epoch: int) -> bool:
        return done % (self.every * per_epoch) == 0 or done == steps

    def score(self, model: Trained) -> Scores:
        """knn: accuracy.  rank: RankMe of the test features."""
        with model.evaluating():
            (x, y), (x_test, y_test) = (self._features(model, *part) for part in self.parts)
        return {"knn": knn_probe(x, y, x_test, y_test, k=min(20, len(x))), "rank": rankme(x_test)}

    def _features(self, model: Trained, images: Images, index: Int64[Tensor, " n"]) -> tuple[Tensor, Tensor]:
        assert images.labels is not None
        rows = [model.call(_encode, x) for x in prepared(images, self.prepare, model.device, index=index)]
        return torch.cat(rows), images.labels[index].to(model.device)


class LabelFree:
    """How many directions the features of some images use: RankMe, alpha-ReQ or LiDAR.  It needs no labels.

    Each time it looks at the same images, and for LiDAR at the same views of them.

    name: rankme, alphareq or lidar.  policy: makes the global views for LiDAR, VIEWS of each image.
    """

    VIEWS = 8

    def __init__(
        self,
        name: str,
        images: Images,
        prepare: Callable[[Tensor], Tensor],
        *,
        policy: ViewPolicy | None = None,
        most: int = 1000,
        every: int = 1,
    ) -> None:
        if name not in LABEL_FREE:
            raise ValueError(f"scores without labels are {', '.join(LABEL_FREE)}; got {name!r}")
        if name == "lidar" and policy is None:
            raise ValueError("lidar compares views of an image: give a policy")
        self.name, self.images, self.prepare, self.policy, self.every = name, images, prepare, policy, every
        shuffled = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        self.index = shuffled[:most].sort().values

    def due(self, done: int, *, steps: int, per_epoch: int) -> bool:
        return done % (self.every * per_epoch) == 0 or done == steps

    def score(self, model: Trained) -> Scores:
        with model.evaluating():
            if self.name == "lidar":
                return {"lidar": lidar(self._views(model))}
            z = torch.cat([model.call(_encode, x) for x in self._prepared(model)])
        return {self.name: rankme(z) if self.name == "rankme" else alpha_req(z)}

    def _prepared(self, model: Trained) -> Iterator[Tensor]:
        return prepared(self.images, self.prepare, model.device, index=self.index)

    def _views(self, model: Trained) -> Tensor:
        """(views, n, d)"""
        assert self.policy is not None
        generator, rows = torch.Generator().manual_seed(0), []
        for part in self.index.split(256):
            images = self.images.batch(part).to(model.device)
            found: list[Tensor] = []
            while len(found) < self.VIEWS:
                views = self.policy.apply(images, self.policy.draw(len(part), generator))
                found += views[: self.policy.n_global]
            rows.append(torch.stack([model.call(_encode, view) for view in found[: self.VIEWS]]))
        return torch.cat(rows, dim=1)


def accuracy(
    model: Trained, images: Images, prepare: Callable[[Tensor], Tensor], *, index: Int64[Tensor, " n"] | None = None
) -> float:
    """The share of `images`, or of those at `index`, that the classifier gets right."""
    if images.labels is None:
        raise ValueError(f"accuracy needs labels, and {images.name} has none")
    index = torch.arange(len(images)) if index is None else index
    guesses = [model.call(class_logits, x).argmax(1) for x in prepared(images, prepare, model.device, index=index)]
    return float((torch.cat(guesses).cpu() == images.labels[index]).double().mean())


def prepared(
    images: Images, prepare: Callable[[Tensor], Tensor], device: torch.device, *, index: Tensor, batch: int = 256
) -> Iterator[Tensor]:
    """The images at `index`, batch by batch, as the network takes them."""
    for part in index.split(batch):
        yield prepare(images.batch(part).to(device, non_blocking=True))


def _encode(method: Method, x: Tensor) -> Tensor:
    return method.encode(x)


def class_logits(method: Method, x: Tensor) -> Tensor:
    """The logits of the classifier inside all wrappers."""
    inner = innermost(method)
    if not isinstance(inner, Classifier):
        raise TypeError(f"{type(inner).__name__} is no classifier: it has no logits()")
    return inner.logits(x)


@runtime_checkable
class Classifier(Protocol):
    def logits(self, x: Tensor) -> Tensor: ...
