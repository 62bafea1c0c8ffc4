"""The encoder of a run or of an export, and the data of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from reglet.data import Images, load, load_pair
from reglet.data.hold_out import hold_out_test
from reglet.data.pair import paired
from reglet.engine.build import build_data
from reglet.engine.run_folder import CONFIG, RunError, read_config, read_run
from reglet.evaluate.labelled import split
from reglet.evaluate.untrained import RANDOM
from reglet.export import CARD, fresh_encoder, load_encoder, start_from
from reglet.train import START

Json = dict[str, Any]


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


def before_training(run: Path, card: Json) -> dict[str, nn.Module]:
    """The encoder with random weights, those of the run's seed; and the weights that it started from, where these are
    others and still there."""
    stored = _stored(run)
    seed, start = stored.get("seed", 0), stored.get("init_from", "")
    encoders = {RANDOM: fresh_encoder(card, seed=seed)}
    kept = run / START  # of `reglet adapt`
    if (kept / CARD).exists() or (start and Path(start).exists()):
        name = start or stored.get("model", "")
        encoders[f"before training, {name}"] = again = fresh_encoder(card, seed=seed)
        start_from(again, str(kept) if (kept / CARD).exists() else start)
    return encoders


def depends_on(run: Path, card: Json) -> Json:
    """What the encoders before training depend on."""
    seed = _stored(run).get("seed", 0)
    return {"architecture": card["architecture"], "model": card.get("model", {}), "seed of weights": seed}


def _stored(run: Path) -> Json:
    return read_config(run / CONFIG) if (run / CONFIG).exists() else {}


def reading(card: Json) -> Json:
    """How images are read for the encoder of this card."""
    return {"size": card["architecture"]["size"], "channels": card["architecture"]["in_channels"]}


def open_data(
    run: Path, data: str, train: str, test: str, *, size: int, channels: int = 0, keep: bool = True
) -> tuple[Images, Images]:
    if test and not train:
        raise ValueError(f"test={test} needs train= beside it: without, it would be among the training images")
    if data and train:
        how: Json = {"size": size, "channels": channels, "keep": keep}
        images = load(data, split=train, **how)
        if test:
            return paired(images, load(data, split=test, **how))
        return split(*hold_out_test(images))
    if data:
        return split(*load_pair(data, size=size, channels=channels, keep=keep))
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
