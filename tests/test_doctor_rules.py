"""The Doctor's own arithmetic, by hand: when it looks, what it keeps, what it says.  No network is trained here."""

import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.diagnostics.test_collapse import as_users_have_it
from torch import Tensor, nn

import reglet
from reglet import doctor as module
from reglet.diagnostics.collapse import covariance_rank, noise_rank
from reglet.diagnostics.diseases import Finding
from reglet.diagnostics.verdict import Verdict
from reglet.doctor import AGAIN, Doctor, DoctorWarning, SickError, _Course, check_embeddings, same_slices, sentence


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def collapsed(n: int = 64) -> Tensor:
    return torch.ones(n, 8) + 1e-4 * normal(n, 8)


def observe_all(doctor: Doctor, *batches: Tensor) -> None:
    for z in batches:
        doctor.observe(z)


def looks(doctor: Doctor, steps: int, z: Tensor | None = None) -> list[int]:
    """The steps at which it looks; `due` foretells each."""
    found = []
    for step in range(1, steps + 1):
        due = doctor.due
        verdict = doctor.observe(normal(64, 8, seed=step) if z is None else z)
        assert due == (verdict is not None)
        found += [step] if due else []
    return found


@pytest.mark.parametrize(
    ("every", "grace", "expected"),
    [(3, 0, [3, 6, 9, 12]), (3, 7, [7, 10]), (1, 0, [*range(1, 13)]), (4, 4, [4, 8, 12]), (5, 1, [5, 10])],
)
def test_when_it_looks(every: int, grace: int, expected: list[int]) -> None:
    assert looks(Doctor(every=every, grace=grace), 12) == expected


def test_when_it_looks_if_nothing_is_said() -> None:
    assert looks(Doctor(), 150) == [100, 125, 150]
    assert Doctor().keep == 256
    assert Doctor().action == "warn"


def test_a_suspicion_is_looked_at_again_soon_and_a_sure_disease_as_usual() -> None:
    for every, again in ((20, AGAIN), (3, 3)):
        doctor = Doctor(every=every, grace=0, action="stop")
        with pytest.warns(DoctorWarning):
            found = looks(doctor, 3 * every, collapsed())
        assert found[:3] == [every, every + again, 2 * every + again][: len(found)]
        assert [row["verdict"] for row in doctor.timeline[:2]] == ["suspicion", "complete collapse"]
        assert doctor.stop


def test_two_suspicions_of_different_diseases_are_not_sure() -> None:
    line = torch.linspace(-1, 1, 128)[:, None] * torch.ones(1, 8) + 1e-4 * normal(128, 8)
    doctor = Doctor(every=1, grace=0, action="raise")
    for z in (collapsed(128), line, normal(128, 8), collapsed(128)):
        doctor.observe(z)
    assert [row["verdict"] for row in doctor.timeline] == ["suspicion", "suspicion", "healthy", "suspicion"]


def test_each_disease_is_told_once_and_with_its_sentence() -> None:
    line = torch.linspace(-1, 1, 128)[:, None] * torch.ones(1, 8) + 1e-4 * normal(128, 8)
    doctor = Doctor(every=1, grace=0)
    with pytest.warns(DoctorWarning) as caught:
        observe_all(doctor, *[collapsed(128)] * 4, *[line] * 3, *[collapsed(128)] * 3)
    assert [str(each.message).split(". ")[0] for each in caught] == [
        "step 2: complete collapse",
        "step 6: dimensional collapse",
    ]
    assert [row["step"] for row in doctor.timeline if "says" in row] == [2, 6]
    assert doctor.timeline[1]["says"] == str(caught[0].message)
    assert set(doctor.timeline[0]) == {"step", "verdict", "features.spread", "features.rank"}


def test_stop_stays_what_was_told() -> None:
    doctor = Doctor(every=1, grace=0, action="stop")
    assert not doctor.stop
    assert doctor.verdict is None
    with pytest.warns(DoctorWarning):
        observe_all(doctor, collapsed(), collapsed())
    assert doctor.stop
    assert doctor.verdict is not None
    assert doctor.verdict.name == "complete collapse"


def test_an_error_brings_the_verdict() -> None:
    doctor = Doctor(every=1, grace=0, action="raise")
    doctor.observe(collapsed())
    with pytest.raises(SickError, match="step 2: complete collapse") as caught:
        doctor.observe(collapsed())
    assert caught.value.verdict.name == "complete collapse"
    assert str(caught.value).startswith("step 2: complete collapse. Seen: ")


# What it keeps


def test_a_look_is_based_on_the_rows_of_the_last_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """`keep` rows at least, whole batches, the latest; the first of the views as features where none are given."""
    seen = watch_diagnose(monkeypatch)
    doctor = Doctor(every=10, grace=0, keep=100)
    batches = [normal(40, 8, seed=i) + 0.1 * normal(2, 40, 8, seed=i + 50) for i in range(20)]
    for z in batches[:10]:
        doctor.observe(z)
    expected = together(*batches[7:10])
    torch.testing.assert_close(seen[0].embeddings, expected)
    torch.testing.assert_close(seen[0].features, expected[0])
    for z in batches[10:]:
        doctor.observe(z, features=z[0, :, :3])
    torch.testing.assert_close(seen[1].features, together(*(z[:1, :, :3] for z in batches[17:]))[0])
    assert all(s.gradients is None and s.classes is None and s.same_slices is None for s in seen)


def together(*steps: Tensor) -> Tensor:
    """(views, n, d) of several steps, each of which has moved to the mean of all."""
    mean = torch.cat(steps, 1).mean((0, 1))
    return torch.cat([z - z.mean((0, 1)) + mean for z in steps], 1)


@pytest.mark.parametrize(("keep", "batches"), [(80, 2), (81, 3), (79, 2), (40, 1), (41, 2), (2, 1)])
def test_how_many_batches_are_kept(keep: int, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch_diagnose(monkeypatch)
    doctor = Doctor(every=6, grace=0, keep=keep)
    held = []
    for i in range(12):
        doctor.observe(normal(40, 8, seed=i))
        held.append(len(doctor._kept["embeddings"]))
    assert [len(s.features) for s in seen] == [40 * batches] * 2
    last = [normal(40, 8, seed=i)[None] for i in range(12 - batches, 12)]
    torch.testing.assert_close(seen[1].features, together(*last)[0])
    assert max(held) <= batches - 1, "what a look was made of is let go"


@pytest.mark.parametrize(("last", "kept"), [(200, 200), (100, 100), (99, 109), (10, 100)])
def test_batches_of_different_sizes(last: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine of ten rows, then one of `last`: the first ones go as soon as the others are enough."""
    seen = watch_diagnose(monkeypatch)
    doctor = Doctor(every=10, grace=0, keep=100)
    batches = [normal(10, 8, seed=i) for i in range(9)] + [normal(last, 8, seed=9)]
    observe_all(doctor, *batches)
    used = {200: 1, 100: 1, 109: 2}[kept] if last > 10 else 10
    torch.testing.assert_close(seen[0].features, together(*(z[None] for z in batches[-used:]))[0])


def test_views_in_all_their_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """One view has no pair; of more than two the first two are compared; other sizes are no pair."""
    seen = watch_diagnose(monkeypatch)
    z = normal(3, 64, 8)
    for given in (z[0], [z[0]], [z[0], z[1]], z[:2], z, [z[0], z[1, :30]]):
        Doctor(every=1, grace=0).observe(given)
    assert [None if s.embeddings is None else len(s.embeddings) for s in seen] == [None, None, 2, 2, 2, None]
    assert all(torch.equal(s.features, z[0]) for s in seen)
    assert torch.equal(seen[4].embeddings, z[:2])
    half = z[0].half().requires_grad_()
    Doctor(every=1, grace=0).observe(half)
    assert seen[-1].features.dtype == torch.float32
    assert not seen[-1].features.requires_grad


def watch_diagnose(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    real = module.diagnose
    monkeypatch.setattr(module, "diagnose", lambda s, **how: (seen.append(s), real(s, **how))[1])
    return seen


def test_ranks_are_of_the_last_128_samples() -> None:
    z = torch.cat([torch.ones(72, 1) * normal(1, 8), normal(128, 8, seed=1)])
    verdict = Doctor(every=1, grace=0, keep=2).observe(z)
    assert verdict is not None
    assert verdict.numbers["features.rank"] == pytest.approx(covariance_rank(z[72:]))
    assert verdict.numbers["features.noise_rank"] == pytest.approx(noise_rank(128, 8))
    assert verdict.numbers["features.n"] == 200


# Fresh or collapsed


def shared_part(size: float, *, n: int = 128, noise: float = 0.0) -> Tensor:
    """Two views of images that differ by 1 in all directions, or by `noise` in each view, beside what they share."""
    z = normal(n, 8) + noise * normal(2, n, 8, seed=1)
    return (z - z.mean((0, 1))) / z.std() + size


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("before", "now", "name"),
    [
        (30.0, 30.0, "healthy"),  # a spread of 0.033 from the first look on
        (0.5, 30.0, "complete collapse"),  # it has fallen to less than a fifth
        (7.0, 30.0, "healthy"),  # from 0.14: to more than that
        (4.0, 20.4, "healthy"),  # to 0.202 of what it was
        (4.0, 21.1, "complete collapse"),  # to 0.195
        (196.0, 196.0, "healthy"),
        (204.0, 204.0, "complete collapse"),  # less than 0.005 is a collapse in any case
    ],
)
def test_what_all_images_share_from_the_start_is_no_collapse(before: float, now: float, name: str, alone: bool) -> None:
    """There is one view only, so nothing is known of telling images apart."""
    doctor = Doctor(every=1, grace=0, keep=2)
    found = []
    for size in (before, now):
        z = shared_part(size)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoctorWarning)
            found.append(doctor.observe(z) if alone else doctor.observe(normal(128, 8), features=z))
    assert found[1] is not None
    assert found[1].name == name
    assert found[1].numbers["features.spread"] == pytest.approx(1 / now, rel=0.2)


def test_where_embeddings_tell_images_apart_features_have_not_collapsed() -> None:
    line = torch.linspace(-1, 1, 128)[:, None] * torch.ones(1, 8) + 1e-3 * normal(128, 8)
    for features in (shared_part(30.0)[0], line):
        doctor, blind = (Doctor(every=1, grace=0, keep=2) for _ in range(2))
        doctor._spread = blind._spread = 0.5
        well = doctor.observe(shared_part(0.5, noise=0.2), features=features)
        sick = blind.observe(shared_part(0.5, noise=1.8), features=features)
        assert well is not None
        assert sick is not None
        assert well.name == "healthy"
        assert sick.name in ("complete collapse", "dimensional collapse")
        assert 0.6 < sick.numbers["embeddings.auc"] < 0.8 < well.numbers["embeddings.auc"]


def test_two_views_without_features_are_judged_without_what_they_share() -> None:
    for noise in (0.2, 1.8):
        verdict = Doctor(every=1, grace=0).observe(shared_part(30.0, noise=noise))
        assert verdict is not None
        assert verdict.name == "healthy"
    verdict = Doctor(every=1, grace=0).observe(shared_part(300.0, noise=0.2))
    assert verdict is not None
    assert verdict.name == "complete collapse"


@pytest.mark.parametrize(("noise", "name"), [(0.2, "healthy"), (1.8, "dead projector")])
def test_embeddings_that_share_most_are_no_dead_projector_if_they_tell_images_apart(noise: float, name: str) -> None:
    verdict = Doctor(every=1, grace=0).observe(shared_part(30.0, noise=noise), features=shared_part(30.0)[0])
    assert verdict is not None
    assert verdict.name == name


def test_drift_from_step_to_step_is_no_line() -> None:
    doctor = Doctor(every=8, grace=0, keep=512)
    for step in range(7):
        doctor.observe(normal(64, 8, seed=step) + 20.0 * step)
    verdict = doctor.observe(normal(64, 8, seed=7) + 140.0)
    assert verdict is not None
    assert verdict.name == "healthy"
    assert verdict.numbers["features.rank"] > 7


# Gradients and weights


def with_norms(
    a: float, b: float, *, names: tuple[str, str] = ("invariance", "variance"), n: int = 64
) -> tuple[Tensor, Any]:
    """Embeddings on which two terms have gradients of these norms."""
    z = normal(n, 8).requires_grad_()
    first, second = normal(n, 8, seed=1), normal(n, 8, seed=2)
    return z, {
        names[0]: a * (z * first / first.norm()).sum(),
        names[1]: b * (z * second / second.norm()).sum(),
    }


def test_advice_is_the_factor_that_gives_the_share() -> None:
    doctor = Doctor(every=1, grace=0)
    z, terms = with_norms(3.0, 2.0)
    assert doctor.advice() is None
    doctor.observe(z, terms=terms)
    assert doctor.gradients == pytest.approx({"invariance": 3.0, "variance": 2.0}, rel=1e-5)
    assert doctor.start == doctor.gradients
    for share in (0.1, 0.3, 0.5):
        factor = doctor.advice(share)
        assert factor is not None
        assert 2 * factor / (2 * factor + 3) == pytest.approx(share, rel=1e-5)
    assert doctor.advice() == pytest.approx(doctor.advice(0.3))
    z, terms = with_norms(3.0, 20.0)
    doctor.observe(z, terms=terms)
    assert doctor.advice(0.5) == pytest.approx(3 / 20, rel=1e-5)
    assert doctor.advice(0.5, at="start") == pytest.approx(3 / 2, rel=1e-5)
    observe_all(doctor, normal(64, 8))
    assert doctor.advice(0.5) == pytest.approx(3 / 20, rel=1e-5), "a look without terms leaves it"
    with pytest.raises(ValueError, match="at must be one of last, start"):
        doctor.advice(at="end")
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="share is between 0 and 1"):
            doctor.advice(share)


@pytest.mark.parametrize("names", [("invariance", "alignment"), ("variance", "covariance")])
def test_there_is_no_advice_where_a_side_is_missing(names: tuple[str, str]) -> None:
    doctor = Doctor(every=1, grace=0)
    z, terms = with_norms(1.0, 1.0, names=names)
    doctor.observe(z, terms=terms)
    assert doctor.advice() is None
    assert doctor.weights(reglet.VICRegLoss()) == {}


def test_gradients_on_views_in_one_tensor_and_in_a_list() -> None:
    z = normal(2, 64, 8).requires_grad_()
    for given in (z, list(z.unbind())):
        doctor = Doctor(every=1, grace=0)
        views = z if given is z else torch.stack(given)  # type: ignore[arg-type]
        doctor.observe(given, terms={"invariance": 3 * views.sum(), "variance": views.sum()})
        norm = math.sqrt(z.numel())
        assert doctor.gradients == pytest.approx({"invariance": 3 * norm, "variance": norm}, rel=1e-5)


def test_terms_without_a_gradient_are_no_gradients() -> None:
    z, terms = with_norms(1.0, 1.0)
    for given, live in ((z, {k: t.detach() for k, t in terms.items()}), (z.detach(), terms), ([z, z.detach()], terms)):
        doctor = Doctor(every=1, grace=0)
        doctor.observe(given, terms=live)
        assert doctor.gradients == {}
    doctor = Doctor(every=1, grace=0)
    doctor.observe(z, terms={**terms, "constant": torch.tensor(1.0)})
    assert doctor.gradients.keys() == {"invariance", "variance"}


def test_the_weights_of_a_loss() -> None:
    doctor = Doctor(every=1, grace=0)
    z, terms = with_norms(3.0, 2.0)
    doctor.observe(z, terms=terms)
    factor = doctor.advice(0.4)
    assert factor is not None
    weights = doctor.weights(reglet.VICRegLoss(variance=25.0, covariance=2.0), 0.4)
    assert weights == pytest.approx({"variance": 25 * factor, "covariance": 2 * factor})
    assert doctor.weights(reglet.VICRegLoss(variance=25.0, covariance=0.0), 0.4) == pytest.approx(
        {"variance": 25 * factor}
    )
    assert doctor.weights(reglet.VICRegLoss(variance="share:0.3"), 0.4).keys() == {"covariance"}
    # lam R + (1 - lam) I: the odds of the two are what is multiplied
    (lam,) = doctor.weights(reglet.VISRegLoss(lam=0.2, slices=8), 0.4).values()
    assert lam / (1 - lam) == pytest.approx(factor * 0.2 / 0.8)
    assert doctor.weights(reglet.VISRegLoss(lam=1.0, slices=8)) == {"lam": 1.0}
    assert doctor.weights(nn.Linear(2, 2)) == {}
    assert doctor.weights(reglet.VICRegLoss()) == doctor.weights(reglet.VICRegLoss(), 0.3, at="last")
    z, terms = with_norms(3.0, 20.0)
    doctor.observe(z, terms=terms)
    assert doctor.weights(reglet.BarlowTwinsLoss(weight=0.5), 0.5, at="start") == pytest.approx(
        {"weight": 0.75}, rel=1e-5
    )


def test_what_a_wrong_weight_is_told() -> None:
    """By the gradients of the start where the same side was too strong then; by the last ones where that changed."""
    loss = reglet.VICRegLoss(variance=25.0, covariance=0.0)
    holder = nn.Module()
    holder.loss = loss
    for start, at, model in (((1000.0, 3.0), "start", loss), ((1.0, 3.0), "last", loss), ((1e3, 3.0), "start", holder)):
        doctor = Doctor(every=1, grace=1, action="raise")
        z, terms = with_norms(*start)
        doctor.observe(z, terms=terms, model=model)
        z, terms = with_norms(1000.0, 1.0)
        if at == "last":  # the start was well, so the next look is a suspicion
            doctor.observe(z, terms=terms, model=model)
        with pytest.raises(SickError) as caught:
            doctor.observe(z, terms=terms, model=model)
        variance = doctor.weights(loss, at=at)["variance"]
        assert f" variance={variance:.3g} would have 30 % of the gradient; share:0.3 keeps that." in str(caught.value)
        assert doctor.timeline[-1]["regularizer.share"] == pytest.approx(1 / 1001, rel=1e-4)


@pytest.mark.parametrize(
    ("start", "last", "expected"),
    [
        ((9.0, 1.0), (8.0, 2.0), True),
        ((9.0, 1.0), (1.0, 9.0), False),
        ((1.0, 1.0), (2.0, 1.0), False),  # a half is no less than a half
        ((2.0, 1.0), (1.0, 1.0), False),
        ((4.0, 6.0), (1.0, 9.0), True),
        ((1.0, 9.0), (4.0, 6.0), True),
        ((6.0, 4.0), (9.0, 1.0), True),
        ((9.0, 1.0), (6.0, 4.0), True),
    ],
)
def test_a_weight_that_was_wrong_all_along(
    start: tuple[float, float], last: tuple[float, float], expected: bool
) -> None:
    doctor = Doctor()
    doctor.start, doctor.gradients = (
        dict(zip(("invariance", "variance"), each, strict=True)) for each in (start, last)
    )
    assert doctor._always_so() is expected
    doctor.gradients = {"alignment": last[0], "variance": last[1]}  # the terms of another loss
    assert not doctor._always_so()


def test_small_gradients_are_gradients() -> None:
    doctor = Doctor(every=1, grace=0)
    z, terms = with_norms(0.5, 0.25)
    doctor.observe(z, terms=terms)
    assert doctor.advice(0.5) == pytest.approx(2.0, rel=1e-5)


def test_few_samples_hide_no_disease() -> None:
    doctor = Doctor(every=1, grace=0, keep=2, action="raise")
    z, terms = with_norms(1000.0, 1.0, n=40)
    doctor.observe(z, terms=terms)
    with pytest.raises(SickError, match="negligible regularizer"):
        doctor.observe(z, terms=terms)


FINDING = Finding("negligible regularizer", "sick", "seen", "cause", "next")


@pytest.mark.parametrize(
    ("findings", "factor", "weights", "expected"),
    [
        ((FINDING,), None, None, ""),
        ((FINDING,), 2.5, None, " Times 2.5, its weight would have 30 % of the gradient; share:0.3 keeps that."),
        ((FINDING,), 2.5, {"a": 1.0, "b": 0.25}, " a=1 b=0.25 would have 30 % of the gradient; share:0.3 keeps that."),
        ((Finding("collapse", "sick", "seen", "cause", "next"),), 2.5, {"a": 1.0}, ""),
        ((FINDING, Finding("x", "sick", "", "", ""), Finding("y", "remark", "", "", "")), None, None, " Also: x."),
        ((FINDING, Finding("x", "sick", "", "", ""), Finding("y", "sick", "", "", "")), None, None, " Also: x, y."),
    ],
)
def test_the_sentence(
    findings: tuple[Finding, ...], factor: float | None, weights: dict[str, float] | None, expected: str
) -> None:
    said = sentence(Verdict(findings, {}), 7, factor, weights)
    assert said == f"step 7: {findings[0].name}. Seen: seen. Cause: cause. Do: next.{expected}"


# Slices


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: reglet.VICRegLoss(), None),
        (lambda: nn.Linear(2, 2), None),
        (lambda: reglet.VISReg(slices=8, shared_slices=True), True),
        (lambda: reglet.VISReg(slices=8, shared_slices=True, gather=True), False),
        (lambda: reglet.VISReg(slices=8, shared_slices=False), False),
        (lambda: nn.ModuleList([reglet.VISReg(slices=8), reglet.SIGReg(slices=8, shared_slices=True)]), True),
        (lambda: nn.ModuleList([reglet.VISReg(slices=8, gather=True), reglet.SIGReg(slices=8)]), True),
    ],
)
def test_same_slices(build: Callable[[], nn.Module], expected: bool | None) -> None:
    assert same_slices(build()) is expected


def test_slices_are_looked_at_where_there_are_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, loss = watch_diagnose(monkeypatch), reglet.VISReg(slices=8, shared_slices=True)
    doctor = Doctor(every=1, grace=0)
    doctor.observe(normal(64, 8), model=loss)
    monkeypatch.setattr(module, "world_size", lambda: 2)
    doctor.observe(normal(64, 8), model=loss)
    doctor.observe(normal(64, 8))
    assert [s.same_slices for s in seen] == [None, True, None]


# The course of the loss


def course(*means: float, noise: float = 0.01) -> list[str | None]:
    """What is said after each look, of losses that have these means and this deviation."""
    looked = _Course()
    spread = noise / math.sqrt(2)  # of two values: the unbiased deviation is |a - b| / sqrt(2)
    found = [looked.add([mean - spread, mean + spread]) for mean in means]
    return [None if finding is None else finding.name for finding in found]


SICK = "relapse of the loss"


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ((10.0, 5.0, 7.4), None),  # less than half of what was gained
        ((10.0, 5.0, 7.6), SICK),
        ((10.0, 5.0, 9.0), SICK),
        ((10.0, 9.95, 10.2), None),  # 5 deviations were gained: noise
        ((10.0, 9.93, 10.0), SICK),  # 7 were
        ((10.0, 9.93, 9.98), None),  # and 5 lost
        ((10.0, 20.0, 40.0), None),  # nothing was ever gained
        ((10.0, 5.0, 6.0, 5.5), None),
        ((10.0, 5.0, 6.0, 8.0), SICK),  # the best counts, not the last
        ((10.0, 8.0, 5.0, 8.0), SICK),
        ((10.0, 5.0, math.inf), SICK),
    ],
)
def test_a_relapse(means: tuple[float, ...], said: str | None) -> None:
    found = course(*means)
    assert found[-1] == said
    assert found[:-1] == [None] * (len(means) - 1)


@pytest.mark.parametrize("means", [(10.0, 5.0, 7.5), (10.0, 10.0, 12.0)])
def test_exactly_half_of_what_was_gained_is_no_relapse(means: tuple[float, ...]) -> None:
    assert course(*means, noise=0.0) == [None] * 3


def test_noise_of_the_best_look_counts_not_that_of_the_sick_one() -> None:
    looked = _Course()
    for losses in ([10.0, 10.1], [5.0, 5.1]):
        assert looked.add(losses) is None
    found = looked.add([0.0, 18.0])  # a deviation of 13
    assert found is not None
    assert found.evidence == "the loss was 10.1 at first and 5.05 at best, and is 9 now"
    assert found.level == "sick"


def test_where_the_best_look_had_no_noise_that_of_now_counts() -> None:
    looked = _Course()
    for losses in ([10.0, 10.0], [5.0, 5.0], [0.0, 18.0]):
        assert looked.add(losses) is None
    assert looked.add([9.0, 9.1]) is not None


def test_the_first_of_two_equal_looks_is_the_best() -> None:
    looked = _Course()
    for losses in ([10.0, 10.0], [5.0, 6.0], [4.5, 6.5]):
        looked.add(losses)
    assert looked.noise == pytest.approx(math.sqrt(0.5))


def test_losses_that_say_nothing() -> None:
    looked = _Course()
    assert looked.add([]) is None
    assert looked.add([3.0]) is None
    assert looked.first is None
    assert looked.add([math.nan, 1.0]) is None
    assert looked.add([3.0, 3.0]) is None
    looked = _Course()
    looked.add([3.0, 5.0])
    assert (looked.first, looked.best) == (4.0, math.inf)
    looked.add([2.0, 2.0])
    looked.add([math.nan, 1.0])
    assert (looked.first, looked.best, looked.noise) == (4.0, 2.0, 0.0)


def observed(losses: list[float], **more: Any) -> Doctor:
    doctor = Doctor(every=2, grace=0, **more)
    for i, loss in enumerate(losses):
        doctor.observe(normal(64, 8, seed=i), loss=torch.tensor(loss, requires_grad=True))
    return doctor


def test_a_relapse_is_seen_by_the_doctor_and_what_explains_it_comes_first() -> None:
    with pytest.raises(SickError, match="relapse of the loss"):
        observed([10.0, 10.1, 5.0, 5.1, 9.0, 9.1, 9.0, 9.1], action="raise")
    doctor = observed([10.0, 10.1, 5.0, 5.1, 9.0])
    verdict = doctor.observe(collapsed(), loss=torch.tensor(9.1))
    assert verdict is not None
    assert [finding.name for finding in verdict.findings] == ["relapse of the loss"]  # of half the rows only
    doctor = observed([10.0, 10.1, 5.0, 5.1], keep=2)
    doctor.observe(collapsed(), loss=torch.tensor(9.0))
    verdict = doctor.observe(collapsed(), loss=torch.tensor(9.0))
    assert verdict is not None
    assert [finding.name for finding in verdict.findings] == ["complete collapse", "relapse of the loss"]


def test_the_loss_is_the_sum_of_the_terms_where_it_is_not_given() -> None:
    doctor = Doctor(every=10, grace=0)
    z, terms = with_norms(3.0, 2.0)
    doctor.observe(z, terms=terms)
    doctor.observe(z, terms=terms, loss=torch.tensor(7.0))
    doctor.observe(z)
    both = sum(float(term.detach()) for term in terms.values())
    assert [float(loss) for loss in doctor._losses] == pytest.approx([both, 7.0])
    assert not any(loss.requires_grad for loss in doctor._losses)


# An interruption


def test_the_state_is_json_and_goes_on() -> None:
    import json

    doctor = observed([10.0, 10.1, 5.0, 5.1, 9.0])
    z, terms = with_norms(3.0, 2.0)
    first = Doctor(every=4, grace=0)
    first.observe(z, terms=terms)
    for one in (doctor, first, Doctor()):
        other = Doctor(every=one.every, grace=0)
        other.restore(json.loads(json.dumps(one.state())))
        assert other.state() == one.state()
        assert (other.step, other.start, other._next) == (one.step, one.start, one._next)
        assert [float(a) for a in other._losses] == [float(a) for a in one._losses]
    assert first.state()["start"].keys() == {"invariance", "variance"}
    expected = {"first": 10.05, "best": 5.05, "noise": 0.1 / math.sqrt(2)}
    assert doctor.state()["course"] == pytest.approx(expected, rel=1e-5)


def test_what_was_told_and_suspected_survives() -> None:
    doctor, other = Doctor(every=1, grace=0), Doctor(every=1, grace=0, action="stop")
    with pytest.warns(DoctorWarning):
        observe_all(doctor, collapsed(), collapsed())
    other.restore(doctor.state())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.observe(collapsed())  # sure at once, and not told again
    assert other.stop
    assert [row["verdict"] for row in other.timeline] == ["complete collapse"]
    assert "says" not in other.timeline[0]


@pytest.mark.parametrize(("name", "least"), [("every", 1), ("grace", 0), ("keep", 2), ("classes", 2)])
def test_the_smallest_numbers_that_are_taken(name: str, least: int) -> None:
    assert getattr(Doctor(**{name: least}), name) == least
    for wrong in (least - 1, True):
        with pytest.raises(ValueError, match=f"{name} is a whole number of at least {least}, got {wrong!r}"):
            Doctor(**{name: wrong})
    assert Doctor(classes=None).classes is None


def test_what_is_no_embedding_is_named() -> None:
    for wrong, kind, says in (
        ([torch.zeros(4, 8), torch.zeros(1, 8)], ValueError, r"at least 2 samples; got \[\(4, 8\), \(1, 8\)\]"),
        ([torch.zeros(4, 8), torch.zeros(4)], ValueError, r"got \[\(4, 8\), \(4,\)\]"),
        ([torch.zeros(4, 8), torch.zeros(4, 8).long()], TypeError, r"got \['torch.float32', 'torch.int64'\]"),
    ):
        with pytest.raises(kind, match=says):
            check_embeddings(wrong, None)  # type: ignore[arg-type]
    check_embeddings([torch.zeros(2, 1)], torch.zeros(2, 1))


@as_users_have_it()
def test_other_types_are_refused() -> None:
    wrong: Any = 2.5
    with pytest.raises(ValueError, match=r"every is a whole number of at least 1, got 2\.5"):
        Doctor(every=wrong)
    wrong = [torch.zeros(4, 8), [1.0]]
    with pytest.raises(TypeError, match=r"as floating-point tensors; got \['torch.float32', 'list'\]"):
        Doctor().observe(wrong)


def test_a_warning_points_at_the_line_that_called() -> None:
    """In a process of its own: the test run's checker of types stands between caller and doctor."""
    lines = (
        "import torch, reglet",
        "doctor = reglet.Doctor(every=1, grace=0)",
        *["doctor.observe(torch.ones(64, 8))"] * 2,
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("<string>:4: DoctorWarning: step 2: complete collapse."), done.stderr


def test_a_model_is_no_condition() -> None:
    doctor = Doctor(every=1, grace=0, action="raise")
    doctor.observe(collapsed(), model=reglet.VICRegLoss())
    with pytest.raises(SickError):
        doctor.observe(collapsed())
