"""Tip-Adapter, its trained form, and Meta-Adapter, over features that were computed once."""

from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from reglet.engine.feed import TensorFeed
from reglet.engine.monitor import AtEnd, Trained
from reglet.engine.order import WithReplacement
from reglet.method import Batch, Method
from reglet.networks.adapters import MetaAdapter, TipAdapter, TipAdapterF
from reglet.precision import at_least_float32, no_autocast
from reglet.tasks.batches import digest, shuffled
from reglet.tasks.few_shot.config import CLIP, FREE_OF_TRAINING, MEANS, FewShotConfig
from reglet.tasks.few_shot.data import Features, Shots, digits, draw, episode, read
from reglet.tasks.predict import Predict
from reglet.tasks.task import Setup
from reglet.types import Scalar, Terms


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

    def setup(self, config: FewShotConfig, data: Features) -> Setup:
        shots = draw(data, config.shots, seed=config.seed)
        name, mark = config.data or "digits", digest(data.train, data.train_labels, data.test, data.test_labels)
        watch = AtEnd(partial(scores, data=data, shots=shots))
        scale = config.scale or (CLIP if shots.known else MEANS)
        if config.model == "meta-adapter":
            adapter = MetaAdapter(shots.x.shape[2], heads=config.heads, scale=scale)
            method: Method = Episodes(adapter, shots)
            order = WithReplacement(config.episodes, config.episodes, config.seed)
            feed = TensorFeed(partial(orders, shots=shots), order, name=name, fingerprint=mark)
            return Setup(method, feed, [watch], inside="network", sim_blocks=["refine"])
        kind = TipAdapter if config.model == FREE_OF_TRAINING else TipAdapterF
        x, y = shots.x.flatten(0, 1), shots.labels
        network = kind(x, y, shots.class_features, alpha=config.alpha, beta=config.beta, scale=scale)

        views = x[:, None] if shots.views is None else shots.views.flatten(0, 1)

        def batch(index: Tensor, generator: torch.Generator) -> Batch:
            drawn = torch.randint(views.shape[1], (len(index),), generator=generator)
            return Batch([views[index, drawn]], labels=y[index])

        return Setup(
            Predict(network, cross_entropy, term="cross_entropy"),
            TensorFeed(batch, shuffled(len(x), config), name=name, fingerprint=mark),
            [watch],
            inside="network",
            sim_blocks=["cache"],
            trains=isinstance(network, TipAdapterF),
        )


class Episodes(Method):
    """Meta-Adapter, trained in episodes: in each, half of the shots of a class are classified by the others.

    A batch has an order of the shots of every class for each episode, (b, c, k).  A single shot is its own support.
    """

    x: Tensor
    class_features: Tensor

    def __init__(self, network: MetaAdapter, shots: Shots) -> None:
        super().__init__()
        self.network, self.known = network, shots.known
        self.register_buffer("x", shots.x)
        self.register_buffer("class_features", shots.class_features)

    def forward(self, batch: Batch) -> Terms:
        terms = [self._entropy(order) for order in batch.views[0]]
        return {"cross_entropy": torch.stack(terms).mean()}

    def _entropy(self, order: Int64[Tensor, "c k"]) -> Scalar:
        support, x, y = episode(Shots(self.x, self.class_features, self.known), order)
        logits = self.network(x, support.class_features, support.x)
        with no_autocast(logits):
            return F.cross_entropy(at_least_float32(logits), y)

    def encode(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        y: Tensor = self.network(x, self.class_features, self.x)
        return y


def orders(index: Int64[Tensor, " b"], generator: torch.Generator, *, shots: Shots) -> Batch:
    """For each episode, the shots of every class in an order of their own."""
    return Batch([torch.rand(len(index), *shots.x.shape[:2], generator=generator).argsort(2)])


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    assert batch.labels is not None
    return F.cross_entropy(logits, batch.labels)


def scores(model: Trained, *, data: Features, shots: Shots) -> dict[str, float]:
    logits = model.call(lambda method, x: method.encode(x), data.test).cpu()
    alone = F.normalize(data.test, dim=1) @ F.normalize(shots.class_features, dim=1).T
    return {"accuracy": _right(logits, data.test_labels), "head_alone": _right(alone, data.test_labels)}


def _right(logits: Float[Tensor, "m c"], labels: Int64[Tensor, " m"]) -> float:
    return float((logits.argmax(1) == labels).float().mean())
