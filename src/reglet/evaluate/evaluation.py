"""One encoder: its features are extracted once, then probes and diagnostics judge them."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from reglet.data import Images
from reglet.evaluate.classes import ByClass, by_class, chance
from reglet.evaluate.compute import Compute
from reglet.evaluate.extract import CPU, extract, require_fit
from reglet.evaluate.labelled import labels_of
from reglet.evaluate.probing import DEFAULT, PROBES, ProbeData, score
from reglet.evaluate.representation import Numbers, representation
from reglet.evaluate.untrained import Rows

Json = dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """data: the name of the data.  probes: name -> accuracy and other metrics on the test images; "classifier" is the
    run's own trained classifier.

    representation: diagnostics of the training features.  seconds: the time of each part.
    untrained: the same probes on random weights and on raw pixels.
    classes: results class by class, of the classifier, or else of a probe.
    right: probe -> whether each test image was classified correctly, in order; not written to files.

    >>> seen = Evaluation({"name": "digits"}, {"knn": {"accuracy": 0.9}}, {"rank": 12.0}, {"features": 1.5})
    >>> seen.json()["probes"]
    {'knn': {'accuracy': 0.9}}
    """

    data: Json
    probes: dict[str, Json]
    representation: Numbers
    seconds: dict[str, float]
    untrained: Rows = field(default_factory=dict)
    classes: ByClass | None = None
    right: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def json(self) -> Json:
        """Plain values, with null for what is not a number."""
        plain: Json = _plain(asdict(replace(self, right={})))
        del plain["right"]
        return plain


def evaluate(
    encoder: nn.Module,
    train: Images,
    test: Images,
    preprocess: Callable[[Tensor], Tensor],
    *,
    probes: Sequence[str] = DEFAULT,
    blocks: int = 1,
    batch: int = 256,
    compute: Compute = CPU,
    seed: int = 0,
    head: tuple[nn.Linear, list[str]] | None = None,
) -> Evaluation:
    """Score `encoder` (images -> (n, d)) on images with labels, prepared by `preprocess`.

    probes: any of knn; linear (SGD at 13 rates); exact (convex optimisation); ridge; mlp; few (ten labels a class).
    blocks: how many last blocks of a ViT the linear probes see; four in VISReg's and SER's protocols.
    head: of a trained classifier, with the names of its classes.

    >>> import torch
    >>> from reglet.backbones import ConvNet
    >>> from reglet.data import load
    >>> digits = load("digits", split="test")
    >>> train, test = digits.part(torch.arange(200), name="a"), digits.part(torch.arange(200, 250), name="b")
    >>> seen = evaluate(ConvNet(widths=(8, 16), depth=1), train, test, lambda x: x / 255, probes=("knn",))
    >>> seen.probes["knn"]["k"], seen.representation["features"]
    (20, 16)
    """
    require_probes(probes)
    train_labels, test_labels = labels_of(train, test)
    require_fit(encoder, train, preprocess)
    require_fit(encoder, test, preprocess)
    clock = _Clock()
    wide, wide_test = (
        extract(encoder, images, preprocess, blocks=blocks, batch=batch, compute=compute) for images in (train, test)
    )
    clock.lap("features")
    d = wide.shape[1] // blocks  # the last block's are the encoder's own
    y, y_test = train_labels.to(wide.device), test_labels.to(wide.device)
    task = ProbeData(wide[:, -d:], y, wide_test[:, -d:], y_test, wide, wide_test, seed)
    names = train.classes or []
    numbers, guesses = score(task, probes, test=test, own=head, names=names, lap=clock.lap)
    found = representation(task.train, y, seed=seed)
    clock.lap("representation")
    data = {
        "train": {"name": train.name, "images": len(train), "fingerprint": train.fingerprint},
        "test": {"name": test.name, "images": len(test), "fingerprint": test.fingerprint},
        "classes": len(names),
        "chance": chance(y, y_test, names),
        "blocks": blocks,
        "seed": seed,
    }
    right = {name: (guess == y_test).cpu() for name, guess in guesses.items()}
    return Evaluation(data, numbers, found, clock.seconds, classes=by_class(guesses, y_test, names), right=right)


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.start = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self.start = now - self.start, now


def require_probes(probes: Sequence[str]) -> None:
    for name in probes:
        if name not in PROBES:
            close = get_close_matches(name, PROBES, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"no probe is called {name!r}.{hint} There are {', '.join(PROBES)}")
    if len(set(probes)) != len(probes):
        raise ValueError(f"each probe once, got {', '.join(probes)}")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
