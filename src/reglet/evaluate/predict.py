"""Predictions of a trained classifier: the class of each image, and the probability of every class."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from reglet.data import Images, load
from reglet.data.hold_out import shared
from reglet.engine.build import build_data
from reglet.engine.run_folder import CONFIG, RunError, read_config, read_run
from reglet.evaluate.columns import write_columns
from reglet.evaluate.compute import compute
from reglet.evaluate.embed import readable
from reglet.evaluate.extract import extract, require_fit
from reglet.evaluate.run import open_data, open_encoder, reading, require_same
from reglet.export import load_head


@dataclass(frozen=True)
class Predictions:
    """probabilities: (images, classes).  files: None if images have no names.

    labels: the class of each image by its folder or table, if all of these classes were trained.
    seen: whether the run was trained on the image; None if that is not known, or if there are no labels.
    """

    classes: list[str]
    probabilities: Float[Tensor, "n k"]
    files: list[str] | None
    labels: list[str] | None
    seen: Tensor | None

    @property
    def names(self) -> list[str]:
        """The likeliest class of each image."""
        return [self.classes[i] for i in self.probabilities.argmax(1).tolist()]

    @property
    def accuracy(self) -> tuple[float, int] | None:
        """The accuracy on the images that were not trained on, and the number of these images."""
        if self.labels is None or self.seen is None:
            return None
        right = torch.tensor([a == b for a, b in zip(self.names, self.labels, strict=True)])[~self.seen]
        return (float(right.double().mean()), len(right)) if len(right) else None

    def write(self, out: Path) -> None:
        """To a .csv, .npz or .parquet file: file_name, label where known, class, probability, and p(CLASS) of all."""
        words = {"file_name": self.files, "label": self.labels, "class": self.names}
        columns = {name: np.array(values) for name, values in words.items() if values is not None}
        columns["probability"] = self.probabilities.max(1).values.numpy()
        columns |= {f"p({name})": self.probabilities[:, i].numpy() for i, name in enumerate(self.classes)}
        write_columns(out, columns)


def predict(
    run: Path,
    spec: str = "",
    *,
    split: str = "",
    batch: int = 256,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    says: Callable[[str], None] = print,
) -> Predictions:
    """Predict with the classifier that `reglet train` left in the directory `run`.

    spec: a folder, an image file, a .npz, or any other name of data; nothing: the images that the run has held out.
    Images are prepared as for `reglet eval`.  A file that cannot be read is left out, and `says` is told its name.
    """
    _require_classifier(run)
    encoder, preprocess, card = open_encoder(run)
    found = load_head(run, card)
    if found is None:
        raise RunError(
            f"{run} has no classifier: its features were learned without labels. To train one on them: "
            f"reglet train data=... init_from={run}"
        )
    head, classes = found
    how = reading(card)
    images = load(spec, split=split, once=True, **how) if spec else open_data(run, "", "", "", **how)[1]
    where = compute(accelerator=accelerator, devices=devices, precision=precision)
    require_fit(encoder, images, preprocess)
    z = extract(encoder, images, preprocess, batch=batch, compute=where).cpu()
    fine = readable(images, says=says)
    labels = _labels(images, fine, classes)
    with torch.no_grad():
        probabilities = head(z[fine]).softmax(1)
    seen = None if labels is None else _seen(run, images) if spec else torch.zeros(len(images), dtype=torch.bool)
    return Predictions(classes, probabilities, images.names(fine), labels, None if seen is None else seen[fine])


def _require_classifier(run: Path) -> None:
    """An error that says what to do with a run of a task."""
    if not (run / CONFIG).exists() or "task" not in (about := read_config(run / CONFIG)):
        return
    if about["task"] == "domains":
        raise RunError(
            f"{run} is of task=domains, which leaves each domain out in turn: it measures a method and has a network "
            f"for each domain, none trained on all. Train one that is: reglet train data={about.get('data')}"
        )
    raise RunError(
        f"{run} is of task={about['task']}, whose data are not read by reglet predict. reglet export {run} writes its "
        "network as a program for plain torch"
    )


def _labels(images: Images, index: Tensor, classes: list[str]) -> list[str] | None:
    """Names of classes, where every one of them can be predicted."""
    if images.labels is None or images.classes is None:
        return None
    names = [images.classes[i] for i in images.labels[index].tolist()]
    return names if set(names) <= set(classes) else None


def _seen(run: Path, images: Images) -> Tensor | None:
    """Whether each image has the content of a training image; None where these cannot be read any more."""
    try:
        config, stored = read_run(run)
        train, _ = require_same(run, stored, *build_data(config))
    except (ValueError, OSError):
        return None
    mask = torch.zeros(len(images), dtype=torch.bool)
    mask[shared(train, images)] = True
    return mask
