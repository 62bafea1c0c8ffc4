"""What `reglet pretrain` and `reglet train` do, from Python."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from reglet.engine.config import from_flat
from reglet.engine.run_folder import free_folder
from reglet.evaluate import evaluate_run
from reglet.evaluate.evaluation import Evaluation
from reglet.export import load_encoder
from reglet.train import run


@dataclass(frozen=True)
class TrainedRun:
    """path: its directory, as the command leaves it.  scores: the last of each that was watched, such as knn.

    encoder: the trained network, in eval mode; `preprocess` makes its input of uint8 images.
    """

    path: Path
    scores: dict[str, float]
    encoder: nn.Module
    preprocess: Callable[[Tensor], Tensor]

    def evaluate(self, data: str | Path = "", **keys: Any) -> Evaluation:
        """As `reglet eval`: probes and diagnostics, on the run's own data unless others are given."""
        return evaluate_run(self.path, data=str(data), **keys)


def pretrain(data: str | Path, *, out: str | Path = "", shown: bool = True, **keys: Any) -> TrainedRun:
    """Learn an encoder from images without labels.

    keys: those of the command, model="vit_tiny", method="visreg", epochs=10, ...; arguments of a part are given as
    options={"loss.slices": 256}.  out: the directory; default: the first of runs/run, runs/run-2, ... that is free.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     run = pretrain("digits", model="convnet", method="visreg", out=f"{place}/a", steps=2, batch=16, shown=False)
    >>> sorted(run.scores), run.encoder.dim
    (['knn', 'rank'], 128)
    """
    return _train("pretrain", data, out, shown, keys)


def train_classifier(data: str | Path, *, out: str | Path = "", shown: bool = True, **keys: Any) -> TrainedRun:
    """Learn a classifier from images with labels; keys as `reglet train` has them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     run = train_classifier("digits", model="resnet8", out=f"{place}/b", steps=2, batch=16, shown=False)
    >>> sorted(run.scores)
    ['accuracy', 'knn', 'rank']
    """
    return _train("train", data, out, shown, keys)


def _train(command: str, data: str | Path, out: str | Path, shown: bool, keys: dict[str, Any]) -> TrainedRun:
    options = keys.pop("options", {})
    place = str(out) or free_folder(Path("runs/run"))
    result = run(from_flat({"command": command, "data": str(data), "out": place, **keys, **options}), shown=shown)
    encoder, preprocess, _ = load_encoder(result.out)
    return TrainedRun(result.out, result.scores, encoder, preprocess)
