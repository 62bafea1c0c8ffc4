"""One run, gathered."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from reglet.diagnostics.verdict import Symptoms, Verdict, diagnose
from reglet.engine.run_folder import CHECKPOINT, CONFIG, RunError
from reglet.evaluate.examine import examine
from reglet.evaluate.labelled import at_most
from reglet.export import CARD
from reglet.report.gather.cost import RunCost, cost
from reglet.report.gather.embedding import Embedding, Latents, embedding, latent_dr, latents
from reglet.report.gather.geometry import Geometry, geometry
from reglet.report.gather.maps import Maps, maps
from reglet.report.gather.missing import Missing, attempt
from reglet.report.gather.probing import Probes, beside, probe
from reglet.report.gather.repeat import Repeat, read_stored, repeat
from reglet.report.gather.robustness import CorruptionTable, Equivariance, equivariance, robustness
from reglet.report.gather.source import Source, open_source
from reglet.report.gather.training import Training, training

T = TypeVar("T")
MOST = 20_000  # training and test images: a page, not an evaluation


@dataclass(frozen=True)
class RunData:
    """latents: None where the run is not LatentDR's."""

    name: str
    repeat: Repeat
    training: Training | Missing
    verdict: Verdict | Missing
    probes: Probes | Missing
    cost: RunCost | Missing
    embedding: Embedding | Missing
    latents: Latents | Missing | None
    geometry: Geometry | Missing
    maps: Maps | Missing
    equivariance: Equivariance | Missing
    robustness: CorruptionTable | Missing


def gather(
    run: Path,
    *,
    name: str = "",
    data: str = "",
    points: int = 1000,
    robust_images: int = 200,
    source: Source | None = None,
    says: Callable[[str], None] = lambda _: None,
) -> RunData:
    """Everything that the page shows of the run in the directory `run`.

    points: images on the map, at most.  robust_images: images to corrupt; 0: none.
    source: of a run that was made in Python, or of an encoder that is not of reglet; `run` need not exist then.
    """
    if source is None and not run.is_dir():
        raise RunError(f"there is no directory {run}")
    if source is None and not (run / CONFIG).exists() and not (run / CARD).exists():
        raise RunError(f"{run} is no directory of a run or of an exported encoder: no {CONFIG} and no {CARD}")
    foreign = source is not None and bool(source.about)
    stored = source.about if source is not None and foreign else read_stored(run)
    opened = source if source is not None else attempt(lambda: open_source(run, data=data))
    says(f"{run}: features")
    if isinstance(opened, Source):
        opened = replace(opened, train=at_most(opened.train, MOST), test=at_most(opened.test, MOST))
    x = _with(opened, lambda s: s.features(s.train))
    x_test = _with(opened, lambda s: s.features(s.test))

    def take(what: str, step: Callable[[Source, Tensor, Tensor], T]) -> T | Missing:
        says(f"{run}: {what}")
        return _both(opened, x, x_test, step)

    def show(what: str, step: Callable[[Source, Tensor, Tensor], T]) -> T | Missing:
        """What needs a network."""
        bare = isinstance(opened, Source) and not opened.network
        return Missing("a file of features has no network to show images to") if bare else take(what, step)

    return RunData(
        name or run.name,
        repeat(stored),
        Missing("it was not trained here") if foreign else attempt(lambda: training(run, stored)),
        verdict=_verdict(run, data, source, x_test),
        probes=take("probes", lambda s, a, b: probe(a, b, s.train, s.test, head=s.head, before=beside(run, s))),
        cost=show("cost", lambda s, a, b: cost(run, stored, s))
        if source
        else attempt(lambda: cost(run, stored, opened)),
        embedding=take("map", lambda s, a, b: embedding(b, s.test, most=points)),
        latents=_latents(opened, x_test),
        geometry=take("geometry", lambda s, a, b: geometry(s, b)),
        maps=show("maps", lambda s, a, b: maps(s)),
        equivariance=show("equivariance", lambda s, a, b: equivariance(s)),
        robustness=show("robustness", lambda s, a, b: robustness(run, s, a, images=robust_images))
        if robust_images
        else Missing("it was not asked for"),
    )


def _verdict(run: Path, data: str, source: Source | None, x: Tensor | Missing) -> Verdict | Missing:
    if source is None and ((run / CHECKPOINT).exists() or data):
        return attempt(lambda: examine(run, data=data))
    return x if isinstance(x, Missing) else attempt(lambda: diagnose(Symptoms(x)))


def _latents(opened: Source | Missing, x: Tensor | Missing) -> Latents | Missing | None:
    dr = None if isinstance(opened, Missing) else latent_dr(opened)
    return None if dr is None else _both(opened, x, x, lambda s, a, b: latents(s, dr, b))


def _with(opened: Source | Missing, step: Callable[[Source], T]) -> T | Missing:
    return opened if isinstance(opened, Missing) else attempt(lambda: step(opened))


def _both(
    opened: Source | Missing, x: Tensor | Missing, x_test: Tensor | Missing, step: Callable[[Source, Tensor, Tensor], T]
) -> T | Missing:
    for part in (opened, x, x_test):
        if isinstance(part, Missing):
            return part
    assert isinstance(opened, Source)
    assert isinstance(x, Tensor)
    assert isinstance(x_test, Tensor)
    a, b, s = x, x_test, opened
    return attempt(lambda: step(s, a, b))
