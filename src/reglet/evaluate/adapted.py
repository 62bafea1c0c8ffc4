"""Is the encoder better than at the start?  Compares start and end of `reglet adapt` on the same test images."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.data import Images, Part
from reglet.diagnostics import rankme
from reglet.diagnostics.robustness import correct_under_corruption
from reglet.engine.build import build_data
from reglet.engine.run_folder import read_run, write_json
from reglet.evaluate.compute import Compute, compute
from reglet.evaluate.extract import extract
from reglet.evaluate.labelled import at_most, labels_of
from reglet.evaluate.run import require_same
from reglet.export import load_encoder
from reglet.probes import few_label_correct, knn_votes, linear_probe, linear_sgd_probe
from reglet.runs.by_image import ByImage, Told, by_image, correct_images, statistic_by_image, tell
from reglet.train import START

Json = dict[str, Any]
Outcome = Literal["better", "worse", "mixed", "cannot be told", "no labels"]
REPORT = "adapt.json"
MOST = 5_000  # images of each part
EXACT = 2_000  # training images up to which the linear probe is solved exactly; by SGD it overfits on so few
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate", "jpeg_compression")
SEVERITY, ROBUST_IMAGES = 3, 500
NAMES = {"linear": "linear probe", "knn": "kNN", "few": "few labels", "corrupted": "kNN, corrupted", "rank": "RankMe"}


@dataclass(frozen=True)
class Row:
    """A score at the start and at the end.  p: for no difference, corrected for the number of scores (Holm).

    >>> from reglet.runs.by_image import ByImage
    >>> Row(ByImage(0.5, 0.6, 0.1, 0.05, 0.15, 0.01, 200), p=0.04, told="better").found.difference
    0.1
    """

    found: ByImage
    p: float
    told: Told


@dataclass(frozen=True)
class Adapted:
    """rows: score -> start, end and difference, paired by test image.  which: "last" or "best" weights of the run.

    verdict: better if a score is better and none is worse, worse in the opposite case, mixed if there are both.

    >>> Adapted({}, "no labels", images=0, which="last").passes("better")
    False
    """

    rows: dict[str, Row]
    verdict: Outcome
    images: int
    which: str

    def passes(self, require: str) -> bool:
        """require: "not worse", or "better"."""
        return self.verdict == "better" if require == "better" else self.verdict not in ("worse", "mixed")

    def json(self) -> Json:
        return asdict(self)


def judge_adapted(run: Path, *, which: str = "last", most: int = MOST, accelerator: str = "auto") -> Adapted:
    """Compare the encoder of the directory `run`, the last or the best one, with that of its `start/`.

    Probes train on the run's training images and are tested on its test images: a linear probe, kNN, few labels of each
    class, and kNN under a few corruptions.  Without labels there is only the rank.  The result is in adapt.json.
    """
    config, stored = read_run(run)
    images, test = require_same(run, stored, *build_data(config))
    where = compute(accelerator=accelerator, precision=config.precision)
    folders = {"start": run / START, "end": run if which == "last" else run / "best"}
    encoders = {name: load_encoder(folder)[:2] for name, folder in folders.items()}
    scored = test if test is not None else images
    scored = at_most(scored, most)
    features = {name: extract(*_order(pair, scored), compute=where) for name, pair in encoders.items()}
    found: dict[str, ByImage] = {}
    if test is not None and images.labels is not None and test.labels is not None and len(images.labels.unique()) > 1:
        known = at_most(images, most)
        right = {
            name: scores(*pair, known, scored, test_features=features[name], where=where)
            for name, pair in encoders.items()
        }
        found = {name: by_image(value, right["end"][name]) for name, value in right["start"].items()}
    found["rank"] = statistic_by_image(rankme, features["start"], features["end"])
    told = dict(zip(found, tell(list(found.values())), strict=True))
    rows = {name: Row(each, *told[name]) for name, each in found.items()}
    result = Adapted(rows, verdict_of(rows), len(scored), which)
    write_json(run / REPORT, result.json())
    return result


def verdict_of(rows: dict[str, Row]) -> Outcome:
    """
    >>> verdict_of({})
    'no labels'
    """
    told = {row.told for row in rows.values()} - {"none"}
    if not told:
        return "no labels"
    if told >= {"better", "worse"}:
        return "mixed"
    return "better" if "better" in told else "worse" if "worse" in told else "cannot be told"


def scores(
    encoder: nn.Module,
    preprocess: Callable[[Tensor], Tensor],
    train: Images,
    test: Images,
    *,
    test_features: Float[Tensor, "n d"],
    where: Compute,
) -> dict[str, Float[Tensor, " k"]]:
    """The scores of each test image by name: 0 or 1, or a share."""
    labels, truth = (y.to(where.place) for y in labels_of(train, test))
    x, z = extract(encoder, train, preprocess, compute=where), test_features
    k = min(20, len(x))
    linear: Callable[..., Any] = linear_probe if len(x) <= EXACT else linear_sgd_probe
    counts = labels.bincount()
    each = min(10, int(counts[counts > 0].min()))
    found = {
        "linear": correct_images(linear(x, labels, z, truth).logits, truth),
        "knn": correct_images(knn_votes(x, labels, z, k=k), truth),
        "few": few_label_correct(x, labels, z, truth, per_class=each),
    }
    few = torch.arange(len(test))[:ROBUST_IMAGES]
    pictures = Part(test, few, name="some").batch(few)
    if pictures.shape[1] in (1, 3) and min(pictures.shape[2:]) >= 8:
        net = where.copies(encoder)[0]

        @torch.no_grad()
        def predict(images: Tensor) -> Tensor:
            with where.mixed():
                own = net(where.cast(preprocess(where.take((images * 255).round().to(torch.uint8))))).float()
            return knn_votes(x, labels, own, k=k)

        corrupted = partial(correct_under_corruption, corruptions=CORRUPTIONS, severities=(SEVERITY,))
        found["corrupted"] = corrupted(predict, pictures, truth[few.to(where.place)])
    return found


def _order(pair: tuple[nn.Module, Callable[[Tensor], Tensor]], images: Images) -> tuple[Any, Any, Any]:
    return pair[0], images, pair[1]
