"""The encoder of a run, evaluated; the numbers lie beside it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from reglet.data import Images, load, load_pair
from reglet.data.hold_out import hold_out_test
from reglet.data.pair import paired
from reglet.engine.build import build_data
from reglet.engine.run_folder import CONFIG, RunError, read_config, read_run, write_json
from reglet.evaluate.compute import compute
from reglet.evaluate.evaluation import Evaluation, evaluate
from reglet.evaluate.labelled import at_most, split
from reglet.evaluate.probing import DEFAULT
from reglet.evaluate.untrained import RANDOM, untrained
from reglet.export import CARD, fresh_encoder, load_encoder, load_head, start_from, versions
from reglet.train import START

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
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    seed: int = 0,
    most: int = 0,
    out: Path | None = None,
) -> Evaluation:
    """The encoder in the directory `run`, a run's or an exported one, on `data`; written to eval.json there, or `out`.

    data: as for pretraining; the run's own unless given, cut as it was.  train, test: names of its parts; where there
    are none, the images are tested on that every command holds out (`reglet.data.hold_out`).
    most: images of each part, at most; 0: all.

    >>> from tempfile import TemporaryDirectory
    >>> import reglet
    >>> keys = {"model": "convnet", "steps": 2, "batch": 16, "knn_every": 0, "shown": False}
    >>> with TemporaryDirectory() as place:
    ...     run = reglet.pretrain("digits", out=f"{place}/a", **keys)
    ...     seen = evaluate_run(run.path, probes=("knn",), most=100)
    >>> sorted(seen.untrained)
    ['random weights', 'raw pixels, 16 x 16']
    """
    where = compute(accelerator=accelerator, devices=devices, precision=precision)
    encoder, preprocess, card = open_encoder(run)
    images, held = open_data(run, data, train, test, **reading(card))
    if most:
        images, held = at_most(images, most), at_most(held, most)
    how: Json = {"probes": probes, "batch": batch, "compute": where, "seed": seed}
    found = evaluate(encoder, images, held, preprocess, **how, blocks=blocks, head=load_head(run, card))
    encoders, depends = before_training(run, card)
    found = replace(found, untrained=untrained(encoders, images, held, preprocess, about=depends, folder=run, **how))
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


def before_training(run: Path, card: Json) -> tuple[dict[str, nn.Module], Json]:
    """The encoder with random weights, those of the run's seed; the weights that it started from, where these are
    others and still there; and what both depend on."""
    stored = read_config(run / CONFIG) if (run / CONFIG).exists() else {}
    seed, start = stored.get("seed", 0), stored.get("init_from", "")
    encoders = {RANDOM: fresh_encoder(card, seed=seed)}
    kept = run / START  # of `reglet adapt`
    if (kept / CARD).exists() or (start and Path(start).exists()):
        name = start or stored.get("model", "")
        encoders[f"before training, {name}"] = again = fresh_encoder(card, seed=seed)
        start_from(again, str(kept) if (kept / CARD).exists() else start)
    return encoders, {"architecture": card["architecture"], "model": card.get("model", {}), "seed of weights": seed}


def reading(card: Json) -> Json:
    """How images are read for the encoder of this card."""
    return {"size": card["architecture"]["size"], "channels": card["architecture"]["in_channels"]}


def open_data(run: Path, data: str, train: str, test: str, *, size: int, channels: int = 0) -> tuple[Images, Images]:
    if test and not train:
        raise ValueError(f"test={test} needs train= beside it: without, it would be among the training images")
    if data and train:
        images = load(data, split=train, size=size, channels=channels)
        if test:
            return paired(images, load(data, split=test, size=size, channels=channels))
        return split(*hold_out_test(images))
    if data:
        return split(*load_pair(data, size=size, channels=channels))
    if train:
        raise ValueError("train= and test= name parts of data=, which is missing")
    if not (run / CONFIG).exists():
        raise RunError(f"{run} is an exported encoder, without its data: give data=")
    config, stored = read_run(run)
    return split(*require_same(run, stored, *build_data(config)))


def require_same(run: Path, stored: Json, images: Images, test: Images | None) -> tuple[Images, Images | None]:
    """An error where the training images are not those of the run: then test images could be among those it saw."""
    if stored["fingerprint"] != images.fingerprint:
        raise RunError(
            f"the data of the run in {run} have changed since, or it is of a reglet that held out no test images: what "
            f"it was trained on is not known ({images.name} is {images.fingerprint}, it was {stored['fingerprint']}). "
            "Give data= with images that it has not seen"
        )
    return images, test
