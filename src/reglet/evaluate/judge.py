"""Several encoders on several data sets: one table, in which every difference is paired by test image.

On each set, every two encoders are compared on the same test images (`reglet.runs.by_image`: bootstrap, McNemar's test
or sign flips).  Holm's procedure corrects the p-values of all comparisons together.  An encoder wins a comparison if it
is told to be better.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from reglet.data import Images
from reglet.evaluate.compute import Compute
from reglet.evaluate.encoder_cost import EncoderCost, encoder_cost
from reglet.evaluate.features_file import FeatureRows
from reglet.evaluate.source import Encoder
from reglet.runs.by_image import ByImage, Told, by_image, tell

Json = dict[str, Any]
Scores = Mapping[str, Tensor]  # measure, such as "linear" -> a score of each test image
Measure = Callable[[Encoder, Images, Images], Scores]
OWN = "its own"  # data that nobody named


@dataclass(frozen=True)
class Duel:
    """Two encoders on one set.  p: corrected for all duels of the table."""

    set: str
    measure: str
    base: str
    candidate: str
    seen: ByImage
    p: float
    told: Told


@dataclass(frozen=True)
class Judged:
    """scores: measure -> set -> encoder -> mean over the test images.  images: test images of each set.

    costs: None for a file of features.  words: how the images of each encoder are prepared; introductions: as lines.
    """

    encoders: list[str]
    sets: list[str]
    measures: list[str]
    images: dict[str, int]
    scores: dict[str, dict[str, dict[str, float]]]
    duels: list[Duel]
    costs: dict[str, EncoderCost | None]
    words: dict[str, str]
    random: list[str]
    introductions: list[str]

    def against_first(self, measure: str) -> list[Duel]:
        """The duels of every other encoder with the first one."""
        return [d for d in self.duels if d.measure == measure and d.base == self.encoders[0]]

    def wins(self, encoder: str, measure: str) -> tuple[int, int]:
        """Duels that it has won, and lost."""
        mine = [d for d in self.duels if d.measure == measure and encoder in (d.base, d.candidate)]
        won = sum(d.told == ("better" if d.candidate == encoder else "worse") for d in mine)
        lost = sum(d.told == ("worse" if d.candidate == encoder else "better") for d in mine)
        return won, lost

    def json(self) -> Json:
        return {
            "encoders": {
                name: {
                    "preprocess": self.words[name],
                    "weights": "random" if name in self.random else "as given",
                    "cost": None if (cost := self.costs[name]) is None else asdict(cost),
                    "wins": {m: dict(zip(("won", "lost"), self.wins(name, m), strict=True)) for m in self.measures},
                }
                for name in self.encoders
            },
            "test images": self.images,
            "scores": self.scores,
            "duels": [asdict(duel) for duel in self.duels],
        }


def judge(
    encoders: Sequence[Encoder],
    sets: Sequence[str],
    measure: Measure,
    *,
    compute: Compute,
    seed: int = 0,
    says: Callable[[str], None] = lambda _: None,
) -> Judged:
    """Every encoder on every set, by `measure`: (encoder, training images, test images) -> scores of the test images.

    sets: as `data=` takes them; none: the encoders' own data, which must be the same.  `says` is told of each step.
    """
    names = [encoder.name for encoder in encoders]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"each encoder once, got {', '.join(sorted(twice))} more than once")
    if twice := {name for name in sets if sets.count(name) > 1}:
        raise ValueError(f"each set once, got {', '.join(sorted(twice))} more than once")
    found: dict[str, dict[str, Scores]] = {}
    costs: dict[str, EncoderCost | None] = {}
    for data in sets or [""]:
        called = data or OWN
        first: Images | None = None
        found[called] = {}
        for encoder in encoders:
            says(f"{encoder.name} on {data or 'its own data'}")
            train, test = encoder.pair(data)
            if first is None:
                first = test
            require_same_images(first, test, names[0], encoder.name)
            found[called][encoder.name] = measure(encoder, train, test)
            if encoder.name not in costs:
                costs[encoder.name] = _cost(encoder, test, compute)
    measures = _common([scores for row in found.values() for scores in row.values()])
    return Judged(
        names,
        list(found),
        measures,
        {data: len(row[names[0]][measures[0]]) for data, row in found.items()},
        {m: {s: {e: float(row[e][m].double().mean()) for e in names} for s, row in found.items()} for m in measures},
        _duels(found, measures, names, seed),
        costs,
        {encoder.name: encoder.words for encoder in encoders},
        [encoder.name for encoder in encoders if encoder.random],
        [encoder.introduction() for encoder in encoders],
    )


def _common(found: Sequence[Scores]) -> list[str]:
    """What every encoder was measured by on every set."""
    if measures := [name for name in found[0] if all(name in scores for scores in found)]:
        return measures
    raise ValueError("nothing was measured by which all encoders can be compared on all sets")


def _duels(
    found: Mapping[str, Mapping[str, Scores]], measures: Sequence[str], names: Sequence[str], seed: int
) -> list[Duel]:
    asked = [(m, s, a, b) for m in measures for s in found for a, b in combinations(names, 2)]
    seen = [by_image(found[s][a][m].double(), found[s][b][m].double(), seed=seed) for m, s, a, b in asked]
    return [
        Duel(s, m, a, b, one, p, told) for (m, s, a, b), one, (p, told) in zip(asked, seen, tell(seen), strict=True)
    ]


def _cost(encoder: Encoder, images: Images, compute: Compute) -> EncoderCost | None:
    return None if encoder.rows is not None else encoder_cost(encoder.net, images, encoder.prepare, compute=compute)


def require_same_images(a: Images, b: Images, first: str, second: str) -> None:
    """Raise unless both test parts have the same images in the same order: otherwise nothing can be paired."""
    if a is b:
        return
    every = torch.arange(len(a))
    same = len(a) == len(b) and _classes(a) == _classes(b)
    if same and (ours := a.names(every)) is not None and (theirs := b.names(every)) is not None:
        same = ours == theirs
    elif same and not any(isinstance(x, FeatureRows) and x.shown is None for x in (a, b)):
        same = _shown(a).content(every) == _shown(b).content(every)
    if not same:
        raise ValueError(
            f"{first} is tested on {len(a)} images of {a.name} and {second} on {len(b)} of {b.name}, and these are not "
            "the same: give data= with images for both"
        )


def _shown(images: Images) -> Images:
    return images.shown or images if isinstance(images, FeatureRows) else images


def _classes(images: Images) -> list[str] | None:
    if images.labels is None or images.classes is None:
        return None
    return [images.classes[i] for i in images.labels.tolist()]
