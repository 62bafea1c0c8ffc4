"""The doctor's verdict on a representation: a name, the evidence, the cause, and what to do next.

`Symptoms` hold what is known, `measure` makes numbers of them, and `diseases` judges the numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch  # noqa: F401  the examples use it
from jaxtyping import Float
from torch import Tensor

from reglet import check
from reglet.diagnostics import diseases
from reglet.diagnostics.collapse import leading, noise_rank, relative_spread, same_image_auc
from reglet.diagnostics.diseases import Finding, Level
from reglet.diagnostics.spectrum import effective_rank, eigenspectrum, feature_std
from reglet.types import INVARIANCE

EXIT_CODES: dict[Level, int] = {
    "healthy": 0,
    "remark": 0,
    "sick": 1,
    "unclear": 4,
}  # 2 and 3 are the command line's own


@dataclass(frozen=True)
class Symptoms:
    """What is known.  Everything except the features may be missing, and is then not judged.

    features: of different images, by the encoder in evaluation mode.
    views: the encoder's features of two views of each image.  embeddings: the projector's outputs for them.
    gradients: the norm of each term's gradient with respect to the embeddings, on one batch.  For a method that
        predicts, with respect to the encoder's weights.
    batch_share, mode_gap: see `batch_dependence`; at the batch size of the training.
    same_slices: whether two ranks average over the same directions.
    batch: the number of samples that the loss sees together.
    classes: of a classifier, whose features need at most classes - 1 directions.
    steps: the number of training steps.

    >>> Symptoms(features=torch.randn(512, 16), classes=10).views is None
    True
    """

    features: Float[Tensor, "n d"]
    views: Float[Tensor, "2 m d"] | None = None
    embeddings: Float[Tensor, "2 m e"] | None = None
    gradients: Mapping[str, float] | None = None
    batch_share: float | None = None
    mode_gap: float | None = None
    same_slices: bool | None = None
    batch: int | None = None
    classes: int | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Verdict:
    """findings: about the run, at least one, the worst first.  numbers: everything that was measured.

    remarks: worth knowing, but not about the run's health.

    >>> from reglet.diagnostics import diagnose
    >>> verdict = diagnose(Symptoms(features=torch.zeros(512, 16)))
    >>> verdict.name, verdict.exit_code
    ('complete collapse', 1)
    """

    findings: tuple[Finding, ...]
    numbers: dict[str, float]
    remarks: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        return self.findings[0].name

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.findings[0].level]


def diagnose(symptoms: Symptoms, *, rows: int | None = None) -> Verdict:
    """rows: at most so many samples for the ranks, of which noise has as many then; default: all.

    >>> z = torch.randn(500, 32, generator=torch.Generator().manual_seed(0))
    >>> diagnose(Symptoms(z)).name, diagnose(Symptoms(z * 0 + 1)).name
    ('healthy', 'complete collapse')
    """
    s = symptoms
    check.tensor("features", s.features, None, None)
    tensors = {"features": s.features}
    for name, z in (("views", s.views), ("embeddings", s.embeddings)):
        if z is not None:
            check.tensor(name, z, 2, None, None)
            tensors[name] = z
    broken = [name for name, z in tensors.items() if not check.is_finite(z)]
    if any(not math.isfinite(norm) for norm in (s.gradients or {}).values()):
        broken.append("gradients")
    measured = {"batch share": s.batch_share, "mode gap": s.mode_gap}
    broken += [name for name, value in measured.items() if value is not None and math.isnan(value)]
    if broken:
        return Verdict((diseases.not_finite(broken),), {})
    return judge(measure(s, rows=rows), same_slices=s.same_slices, steps=s.steps)


def judge(numbers: dict[str, float], *, same_slices: bool | None = None, steps: int | None = None) -> Verdict:
    """What the numbers of `measure` say.

    >>> numbers = measure(Symptoms(torch.randn(500, 32)))
    >>> judge(numbers | {"features.spread": 0.0}).name
    'complete collapse'
    """
    found = [
        *diseases.of_features(numbers),
        *diseases.of_embeddings(numbers),
        *diseases.of_batches(numbers),
        *diseases.of_gradients(numbers),
        *diseases.of_ranks(numbers),
        *diseases.of_slices(same_slices),
        *diseases.of_sizes(numbers),
    ]
    order: list[Level] = ["sick", "unclear", "healthy", "remark"]
    found.sort(key=lambda f: order.index(f.level))  # stable: within a level, the order above
    if steps is not None and steps < diseases.SHORT:
        return Verdict((diseases.too_short(steps),), numbers, tuple(replace(f, level="remark") for f in found))
    about = tuple(f for f in found if f.level != "remark")
    return Verdict(about or (diseases.healthy(numbers),), numbers, tuple(f for f in found if f.level == "remark"))


def measure(s: Symptoms, *, rows: int | None = None) -> dict[str, float]:
    """Everything that is judged, as numbers.  rows: see `diagnose`."""
    numbers = _about("features", s.features, rows)
    if s.views is not None:
        numbers["views.auc"] = same_image_auc(s.views)
    if s.embeddings is not None:
        numbers |= _about("embeddings", s.embeddings[0], rows) | {"embeddings.auc": same_image_auc(s.embeddings)}
        std = feature_std(s.embeddings[0])
        numbers["embeddings.dead"] = float((std <= 1e-6 * std.max()).double().mean())
    known = {"batch_share": s.batch_share, "mode_gap": s.mode_gap, "batch": s.batch, "classes": s.classes}
    numbers |= {name: float(value) for name, value in known.items() if value is not None}
    if s.gradients and any(name in INVARIANCE for name in s.gradients) and len(s.gradients) > 1:
        total = sum(s.gradients.values())
        if total > 0:
            held = sum(norm for name, norm in s.gradients.items() if name not in INVARIANCE)
            numbers["regularizer.share"] = held / total
    return numbers


def _about(what: str, z: Float[Tensor, "n d"], rows: int | None) -> dict[str, float]:
    some = z if rows is None else z[-rows:]
    spectrum = eigenspectrum(some)
    fewer = {f"{what}.rows": float(len(some))} if len(some) < len(z) else {}
    return fewer | {
        f"{what}.n": float(z.shape[0]),
        f"{what}.d": float(z.shape[1]),
        f"{what}.spread": relative_spread(z),
        f"{what}.rank": effective_rank(spectrum),
        f"{what}.noise_rank": noise_rank(*some.shape),
        f"{what}.directions": float(leading(spectrum)),
    }
