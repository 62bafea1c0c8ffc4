"""The encoder of a run, evaluated; the numbers lie beside it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reglet.data import Images, load, load_pair
from reglet.engine.build import build_data
from reglet.engine.folder import CONFIG, RunError, read_run, write_json
from reglet.evaluate.evaluation import Evaluation, evaluate
from reglet.evaluate.labelled import split
from reglet.evaluate.probing import DEFAULT
from reglet.export import CARD, load_encoder, versions

Json = dict[str, Any]
REPORT = "eval.json"


def evaluate_run(
    run: Path,
    *,
    data: str = "",
    train: str = "",
    test: str = "",
    probes: Sequence[str] = DEFAULT,
    blocks: int = 1,
    batch: int = 256,
    device: str = "auto",
    seed: int = 0,
    out: Path | None = None,
) -> Evaluation:
    """The encoder in the directory `run`, a run's or an exported one, on `data`; written to eval.json there, or `out`.

    data: as for pretraining; the run's own unless given, cut as it was.  train, test: names of its parts; where there
    are none, a fifth of the images is held out.
    """
    encoder, preprocess, card = open_encoder(run)
    images, held = open_data(run, data, train, test, size=card["architecture"]["size"], seed=seed)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    found = evaluate(
        encoder, images, held, preprocess, probes=probes, blocks=blocks, batch=batch, device=device, seed=seed
    )
    about = {"encoder": card["architecture"], "versions": versions()}
    write_json(out or run / REPORT, {**found.json(), **about})
    return found


def open_encoder(run: Path) -> tuple[nn.Module, Callable[[Tensor], Tensor], Json]:
    if not run.is_dir():
        raise RunError(f"there is no directory {run}")
    if not (run / CARD).exists():
        if (run / CONFIG).exists():
            raise RunError(
                f"the run in {run} has left no encoder yet. Resume it to its end, or take its last checkpoint: "
                f"reglet export run={run}"
            )
        raise RunError(f"{run} is no directory of a run or of an exported encoder: no {CONFIG} and no {CARD}")
    try:
        return load_encoder(run)
    except KeyError as error:
        raise RunError(f"{run / CARD} is no card of an encoder: it has no {error}") from error


def open_data(run: Path, data: str, train: str, test: str, *, size: int, seed: int) -> tuple[Images, Images]:
    if test and not train:
        raise ValueError(f"test={test} needs train= beside it: without, it would be among the training images")
    if data and train:
        images = load(data, split=train, size=size)
        return split(images, load(data, split=test, size=size) if test else None, seed=seed)
    if data:
        return split(*load_pair(data, size=size), seed=seed)
    if train:
        raise ValueError("train= and test= name parts of data=, which is missing")
    if not (run / CONFIG).exists():
        raise RunError(f"{run} is an exported encoder, without its data: give data=")
    return split(*build_data(read_run(run)[0]), seed=seed)
