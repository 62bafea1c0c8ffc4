"""The doctor beside a training: it looks at embeddings as they pass, and speaks when a disease is sure.

    doctor = reglet.Doctor()
    for batch in loader:
        z0, z1 = ...
        terms = criterion.terms(z0, z1)
        doctor.observe([z0, z1], terms=terms, model=net)     # before backward, which frees the graph
        sum(terms.values()).backward()

The diseases and their thresholds are those of `reglet doctor`.  One is added that only a training can have: a loss that
gives back what it had gained.
"""

import math
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from reglet import check
from reglet.diagnostics.collapse import relative_spread
from reglet.diagnostics.diseases import Finding
from reglet.diagnostics.training import gradient_norms
from reglet.diagnostics.verdict import Symptoms, Verdict, diagnose, judge
from reglet.dist import world_size
from reglet.losses.base import OnViews
from reglet.losses.slices import Slices
from reglet.types import INVARIANCE, Terms

Action = Literal["warn", "stop", "raise"]
AGAIN = 5  # steps until a suspicion is looked at again
RELAPSE = 0.5  # share of what the loss had gained that is lost again
TOLD = 0.8  # how often a view is nearer to the other of its image than to another image: trained encoders have more
FALLEN = 0.2  # of the largest spread that was seen: less is a collapse, not the little that fresh weights have
FLOOR = 0.005  # spread below which features have collapsed in any case
RANKED = 128  # samples that ranks are taken of: eigenvalues are most of what a look costs
NOISES = 6.0  # deviations of the loss by which it must have fallen, and risen, to tell that from noise


class DoctorWarning(UserWarning):
    """A disease is sure."""


class SickError(RuntimeError):
    """A disease is sure, and the doctor was told to raise."""

    def __init__(self, verdict: Verdict, says: str) -> None:
        super().__init__(says)
        self.verdict = verdict


class Doctor:
    """Observes a training.  A sick finding that is still there when it looks again is sure.

    every: steps between two looks.  grace: steps before the first, because fresh weights look sick.
    keep: samples that a look is based on; those of the last steps are put together.
    action: on a disease, "warn" once, "stop" (`doctor.stop` becomes True) or "raise" SickError.
    classes: of a classifier, whose features need no more than classes - 1 directions.

    >>> doctor = Doctor(every=2, grace=0)
    >>> for _ in range(4):
    ...     verdict = doctor.observe(torch.randn(256, 8))
    >>> doctor.verdict.name, [row["step"] for row in doctor.timeline]
    ('healthy', [2, 4])
    """

    def __init__(
        self,
        *,
        every: int = 25,
        grace: int = 100,
        keep: int = 256,
        action: str = "warn",
        classes: int | None = None,
    ) -> None:
        numbers = [("every", every, 1), ("grace", grace, 0), ("keep", keep, 2)]
        for name, value, least in [*numbers, *([] if classes is None else [("classes", classes, 2)])]:
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is a whole number of at least {least}, got {value!r}")
        if action not in get_args(Action):
            raise ValueError(f"action is one of {', '.join(get_args(Action))}; got {action!r}")
        self.every, self.grace, self.keep, self.action, self.classes = every, grace, keep, action, classes
        self.step, self.stop = 0, False
        self.verdict: Verdict | None = None  # of the last look
        self.timeline: list[dict[str, float | str]] = []  # one row for each look
        self.gradients: dict[str, float] = {}  # norm of each term's gradient on the embeddings, at the last look
        self.start: dict[str, float] = {}  # the same at the first step, which no weight has influenced yet
        self._model: nn.Module | None = None
        self._suspect = ""
        self._told: set[str] = set()
        self._next = max(grace, every)
        self._kept: dict[str, deque[Tensor]] = {"embeddings": deque(), "features": deque()}
        self._losses: list[Tensor] = []
        self._course = _Course()
        self._spread = 0.0  # of the features, the largest of all looks

    def observe(
        self,
        embeddings: Tensor | Sequence[Tensor],
        *,
        features: Tensor | None = None,
        terms: Terms | None = None,
        loss: Tensor | None = None,
        model: nn.Module | None = None,
    ) -> Verdict | None:
        """One step of training.  Gives a verdict at the steps at which the doctor looks, None at the others.

        embeddings: what the loss compares, (n, d) or a list of views of the same samples, (v, n, d).
        features: of the encoder, before the projector, (n, d).
        terms: of the loss, before backward; then the share of the regularizer in the gradient is judged, too.
        loss: where there are no terms.
        model: with the loss as `model.loss`, or the loss itself: to name the weight that it should have, and to see
            whether ranks draw the same slices.
        """
        views = list(embeddings) if not isinstance(embeddings, Tensor) or embeddings.ndim == 3 else [embeddings]
        check_embeddings(views, features)
        self.step, self._model = self.step + 1, model
        with torch.no_grad():
            value = loss if loss is not None else sum(terms.values()) if terms else None
        if isinstance(value, Tensor):
            self._losses.append(value.detach())
        pair = [view for view in views[:2] if view.shape == views[0].shape]
        self._remember("embeddings", pair)
        given = [embeddings] if isinstance(embeddings, Tensor) else views
        if terms and self.step == 1:
            self.start = _gradients(terms, given)
        if features is not None:
            self._remember("features", [features])
        if self.step < self._next:
            return None
        return self._look(given, terms or {}, model)

    @property
    def due(self) -> bool:
        """Whether the next `observe` looks: at other steps it needs no terms."""
        return self.step + 1 >= self._next

    def advice(self, share: float = 0.3, *, at: str = "last") -> float | None:
        """By what the regularizer's weight must be multiplied for it to have `share` of the gradient on the embeddings.

        at: the "last" look that had terms, or the "start".  A weight that is wrong by 100 has changed the embeddings by
            the time of a look, and with them all gradients: for a new run take the start.
        None before that, and where one of the two sides sends no gradient.
        """
        if not 0 < share < 1:
            raise ValueError(f"share is between 0 and 1, got {share}")
        check.choice("at", at, ("last", "start"))
        norms = self.start if at == "start" else self.gradients
        against = sum(norm for name, norm in norms.items() if name in INVARIANCE)
        own = sum(norm for name, norm in norms.items() if name not in INVARIANCE)
        return share / (1 - share) * against / own if own > 0 and against > 0 else None

    def weights(self, loss: nn.Module, share: float = 0.3, *, at: str = "last") -> dict[str, float]:
        """The weights of `loss` with which its regularizer would have `share` of the gradient, as `advice` has it.

        >>> z = torch.randn(2, 64, 8).requires_grad_()
        >>> from reglet.losses import BarlowTwinsLoss
        >>> doctor, loss = Doctor(every=1, grace=0), BarlowTwinsLoss(weight=0.51)
        >>> verdict = doctor.observe(z, terms=loss.terms(z))
        >>> list(doctor.weights(loss, share=0.3))
        ['weight']
        """
        factor = self.advice(share, at=at)
        given = {name: getattr(loss, name, None) for name in WEIGHTS}
        found = {name: value for name, value in given.items() if isinstance(value, int | float) and value > 0}
        if factor is None:
            return {}
        if (lam := found.get("lam")) is not None:  # of which the invariance has 1 - lam
            odds = factor * lam / (1 - lam) if lam < 1 else math.inf
            return {"lam": odds / (1 + odds) if math.isfinite(odds) else 1.0}
        return {name: factor * value for name, value in found.items()}

    def state(self) -> dict[str, Any]:
        """What goes on after an interruption, as JSON; without samples of the steps before it."""
        course, losses = vars(self._course), [float(loss) for loss in self._losses]
        return {
            "step": self.step, "next": self._next, "suspect": self._suspect, "told": sorted(self._told),
            "losses": losses, "start": self.start, "spread": self._spread,
            "course": course | {"best": min(self._course.best, 1e300)},
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.step, self._next, self._suspect = state["step"], state["next"], state["suspect"]
        self._told, self._losses = set(state["told"]), [torch.tensor(loss) for loss in state["losses"]]
        self.start, self._spread = dict(state.get("start", {})), state.get("spread", 0.0)
        vars(self._course).update(state["course"])

    def _remember(self, what: str, views: list[Tensor]) -> None:
        """The rows of the last steps before a look, `keep` of them, as (n, views, d)."""
        kept, n = self._kept[what], len(views[0])
        if (self._next - self.step) * n >= self.keep:  # they would be dropped again before the next look
            return
        kept.append(torch.stack([view.detach().float() for view in views], 1))
        while sum(map(len, kept)) - len(kept[0]) >= self.keep:
            kept.popleft()

    def _look(self, given: list[Tensor], terms: Terms, model: nn.Module | None) -> Verdict:
        z = without_drift(self._kept["embeddings"]).transpose(0, 1)  # (views, n, d)
        kept = self._kept["features"]
        features = without_drift(kept)[:, 0] if kept else None
        self.gradients = _gradients(terms, given) or self.gradients
        symptoms = Symptoms(
            z[0] if features is None else features,
            embeddings=z if len(z) == 2 else None,
            gradients=self.gradients or None,
            classes=self.classes,
            same_slices=None if model is None or world_size() == 1 else same_slices(model),
        )
        found = self._collapsed_or_fresh(symptoms, z, alone=features is None)
        relapse = self._course.add([float(loss) for loss in self._losses])
        if relapse is not None:  # what explains it comes first
            causes = tuple(finding for finding in found.findings if finding.level == "sick")
            found = Verdict((*causes, relapse), found.numbers)
        self._losses = []
        for rows in self._kept.values():
            rows.clear()
        return self._judged(found)

    def _collapsed_or_fresh(self, symptoms: Symptoms, embeddings: Tensor, *, alone: bool) -> Verdict:
        """The class token of a fresh transformer has little but what all images share, for a hundred steps and more.

        So features have not collapsed as long as they vary as they did before, nor where the embeddings that are made
        of them tell images apart.  What all images share is then left out.

        alone: no features were given; the embeddings are judged as such.
        """
        found = diagnose(symptoms, rows=RANKED)
        spread, auc = (found.numbers.get(name, 0.0) for name in ("features.spread", "embeddings.auc"))
        self._spread = max(self._spread, spread)
        fallen = spread < FALLEN * self._spread and auc < TOLD
        if found.name not in ("complete collapse", "dimensional collapse") or spread < FLOOR or fallen:
            return found
        # Directions and ranks are the same without the mean.  Only the spread is another.
        numbers, about = dict(found.numbers), ("n", "d", "rank", "noise_rank", "directions")
        if auc >= TOLD:
            numbers |= {f"features.{key}": numbers[f"embeddings.{key}"] for key in about}
        numbers["features.spread"] = 1.0
        if symptoms.embeddings is not None and (alone or auc >= TOLD):
            numbers["embeddings.spread"] = relative_spread(embeddings[0] - embeddings.mean((0, 1)))
        return Verdict(judge(numbers, same_slices=symptoms.same_slices).findings, found.numbers)

    def _judged(self, verdict: Verdict) -> Verdict:
        sick = verdict.findings[0].level == "sick"
        sure = sick and verdict.name == self._suspect
        self._suspect = verdict.name if sick else ""
        again = sick and not sure
        self._next = self.step + (min(AGAIN, self.every) if again else self.every)
        self.verdict = verdict
        said = verdict.name if sure else "suspicion" if sick else "healthy"
        numbers = {key: verdict.numbers[key] for key in SHOWN if key in verdict.numbers}
        row: dict[str, float | str] = {"step": self.step, "verdict": said, **numbers}
        if sure and verdict.name not in self._told:  # the whole sentence once
            row["says"] = self._sentence(verdict)
        self.timeline.append(row)
        if sure:
            self._act(verdict)
        return verdict

    def _act(self, verdict: Verdict) -> None:
        if self.action == "raise":
            raise SickError(verdict, self._sentence(verdict))
        self.stop = self.action == "stop"
        if verdict.name not in self._told:
            self._told.add(verdict.name)
            warnings.warn(self._sentence(verdict), DoctorWarning, stacklevel=5)  # the line that called observe

    def _sentence(self, verdict: Verdict) -> str:
        loss = getattr(self._model, "loss", self._model)
        at = "start" if self._always_so() else "last"
        weights = self.weights(loss, at=at) if isinstance(loss, nn.Module) else {}
        return sentence(verdict, self.step, self.advice(at=at), weights)

    def _always_so(self) -> bool:
        """Whether the same side had most of the gradient at the first step, so that the weight was wrong all along."""
        shares = [_share(norms) for norms in (self.start, self.gradients)]
        return self.start.keys() == self.gradients.keys() and (shares[0] < 0.5) == (shares[1] < 0.5)


def without_drift(steps: Sequence[Tensor]) -> Tensor:
    """Rows of several steps in one tensor, each step moved to the mean of all.

    From step to step the weights change, and with them the mean of the features.  Fresh weights change fast: that is a
    line, along which features of all images move, and beside which the differences between images look like nothing.

    >>> without_drift([torch.tensor([[0.0], [2.0]]), torch.tensor([[100.0], [102.0]])]).tolist()
    [[50.0], [52.0], [50.0], [52.0]]
    """
    rows = torch.cat(tuple(steps))
    over = tuple(range(rows.ndim - 1))  # samples and views: the difference of views stays
    mean = rows.mean(over)
    return torch.cat([step + (mean - step.mean(over)) for step in steps])


def _gradients(terms: Terms, embeddings: Sequence[Tensor]) -> dict[str, float]:
    live = {name: term for name, term in terms.items() if term.requires_grad}
    if not live or not all(z.requires_grad for z in embeddings):
        return {}
    with torch.enable_grad():
        return gradient_norms(live, embeddings)


def _share(norms: Mapping[str, float]) -> float:
    """Of the regularizer."""
    total = sum(norms.values())
    return sum(norm for name, norm in norms.items() if name not in INVARIANCE) / total if total > 0 else 0.0


def check_embeddings(views: Sequence[Tensor], features: Tensor | None) -> None:
    """Vectors, one for each sample: no maps, no tokens, no single sample."""
    expected = "embeddings are (n, d), or views of them"
    if not all(isinstance(view, Tensor) and view.is_floating_point() for view in views):
        raise TypeError(f"{expected}, as floating-point tensors; got {[_kind(view) for view in views]}")
    if not views or any(view.ndim != 2 for view in views):
        raise ValueError(f"{expected}; got {[tuple(view.shape) for view in views]}")
    if any(len(view) < 2 for view in views):
        raise ValueError(f"{expected}, of at least 2 samples; got {[tuple(view.shape) for view in views]}")
    if features is not None:
        check.tensor("features", features, None, None)


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__


WEIGHTS = ("lam", "weight", "variance", "covariance")  # what losses call the weight of all but the invariance
SHOWN = ("features.spread", "features.rank", "regularizer.share")


def sentence(
    verdict: Verdict, step: int, factor: float | None = None, weights: Mapping[str, float] | None = None
) -> str:
    """What a person reads: the disease, the evidence, the cause, what to do."""
    first = verdict.findings[0]
    more = ""
    if factor is not None and "regularizer" in first.name:
        named = " ".join(f"{name}={value:.3g}" for name, value in (weights or {}).items())
        more = f" {named or f'Times {factor:.3g}, its weight'} would have 30 % of the gradient; share:0.3 keeps that."
    others = [finding.name for finding in verdict.findings[1:] if finding.level == "sick"]
    also = f" Also: {', '.join(others)}." if others else ""
    return (
        f"step {step}: {first.name}. Seen: {first.evidence}. Cause: {first.cause}. Do: {first.next_step}.{more}{also}"
    )


def same_slices(model: nn.Module) -> bool | None:
    """Whether ranks average over the same directions, each of its own samples; None without slices."""
    slices = [part for part in model.modules() if isinstance(part, Slices)]
    if not slices:
        return None
    gathered = all(part.gather for part in model.modules() if isinstance(part, OnViews))
    return any(part.shared for part in slices) and not gathered


class _Course:
    """The course of the loss: its mean between two looks, and whether that gives back what was gained."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.best = float("inf")
        self.noise = 0.0

    def add(self, losses: list[float]) -> Finding | None:
        if len(losses) < 2:
            return None
        values: Any = torch.tensor(losses, dtype=torch.float64)
        now, noise = float(values.mean()), float(values.std())
        if self.first is None:
            self.first = now
            return None
        gained, lost = self.first - self.best, now - self.best
        steady = self.noise if self.noise else noise
        if gained > NOISES * steady and lost > max(RELAPSE * gained, NOISES * steady):
            return Finding(
                "relapse of the loss",
                "sick",
                f"the loss was {self.first:.3g} at first and {self.best:.3g} at best, and is {now:.3g} now",
                "the learning rate is too high, or something in the training has changed",
                "go back to the last good checkpoint with a lower learning rate, or clip the gradient",
            )
        if now < self.best:
            self.best, self.noise = now, noise
        return None
