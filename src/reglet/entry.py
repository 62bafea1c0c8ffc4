"""What `reglet pretrain`, `reglet adapt` and `reglet train` do, from Python."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from reglet import progress
from reglet.engine.config import ADAPT, from_flat
from reglet.engine.run_folder import free_folder
from reglet.engine.start import model_of
from reglet.evaluate import evaluate_run
from reglet.evaluate.adapted import Adapted, judge_adapted
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


@dataclass(frozen=True)
class AdaptedRun(TrainedRun):
    """judged: start and end on the same test images, paired by image."""

    judged: Adapted


def adapt(data: str | Path, *, out: str | Path = "", shown: bool = True, **keys: Any) -> AdaptedRun:
    """Continue from given weights.  Keys are those of `reglet adapt`.

    >>> from tempfile import TemporaryDirectory
    >>> short = {"steps": 2, "batch": 16, "knn_every": 0, "shown": False}
    >>> with TemporaryDirectory() as place:
    ...     before = pretrain("digits", model="convnet", out=f"{place}/a", **short)
    ...     run = adapt("digits", init_from=f"{place}/a", preserve="l2sp", out=f"{place}/b", **short)
    >>> sorted(run.judged.rows)
    ['corrupted', 'few', 'knn', 'linear', 'rank']
    """
    found = {} if "model" in keys else model_of(str(keys.get("init_from", "")))
    trained = _train("adapt", data, out, shown, {**ADAPT, **found, **keys})
    best = bool(keys.get("keep_best"))
    with progress.shown(shown):
        judged = judge_adapted(trained.path, which="best" if best else "last")
    if not best:
        return AdaptedRun(trained.path, trained.scores, trained.encoder, trained.preprocess, judged)
    encoder, preprocess, _ = load_encoder(trained.path / "best")
    return AdaptedRun(trained.path, trained.scores, encoder, preprocess, judged)


def train_classifier(data: str | Path, *, out: str | Path = "", shown: bool = True, **keys: Any) -> TrainedRun:
    """Learn a classifier from images with labels.  Keys are those of `reglet train`.

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
