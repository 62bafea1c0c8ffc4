"""The doctor beside a training: runs made sick on purpose in the middle, and healthy ones."""

import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from tests import ranks
from torch import Tensor, nn

import reglet
from reglet.backbones import ViT
from reglet.dist import sum_over_ranks, world_size
from reglet.doctor import Doctor, DoctorWarning, SickError
from reglet.losses.slices import Slices
from reglet.types import Terms

X = torch.tensor(load_digits().data[:1200], dtype=torch.float32) / 16
SICK_FROM = 200


class Run:
    """An MLP on digits with noise, that can be made sick at any step."""

    def __init__(self, loss: nn.Module, seed: int) -> None:
        torch.manual_seed(seed)
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU())
        self.projector = nn.Linear(128, 32)
        self.loss = loss
        parameters = [*self.encoder.parameters(), *self.projector.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=2e-3)
        self.weight, self.generator = 1.0, torch.Generator().manual_seed(seed)

    def steps(self, count: int, doctor: Doctor) -> None:
        for _ in range(count):
            self.step(doctor)

    def step(self, doctor: Doctor | None) -> None:
        batch = X[torch.randint(len(X), (128,), generator=self.generator)]
        noise = 0.2 * torch.randn(2, *batch.shape, generator=self.generator)
        features = [self.encoder(batch + each) for each in noise]
        z = [self.projector(f) for f in features]
        terms: Terms = self.loss.terms(*z)  # type: ignore[operator]
        terms = {name: (1.0 if name == "invariance" else self.weight) * term for name, term in terms.items()}
        if doctor is not None:
            doctor.observe(z, features=features[0], terms=terms, model=self.loss)
        total: Any = sum(terms.values())
        self.optimizer.zero_grad()
        total.backward()
        if world_size() > 1:  # as DDP does
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    p.grad = sum_over_ranks(p.grad) / world_size()
        self.optimizer.step()


def mistyped_rate(run: Run) -> None:
    for group in run.optimizer.param_groups:
        group["lr"] *= 100


def weight_to_zero(run: Run) -> None:
    run.weight = 0.0


@torch.no_grad()
def dead_projector(run: Run) -> None:
    run.projector.weight.zero_()
    run.projector.requires_grad_(False)


ILLNESSES: dict[Callable[[Run], None], set[str]] = {
    mistyped_rate: {"relapse of the loss", "dimensional collapse", "complete collapse", "not finite", "dead projector"},
    weight_to_zero: {"negligible regularizer"},
    dead_projector: {"dead projector"},
}


@pytest.mark.parametrize("illness", ILLNESSES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [reglet.VISRegLoss, reglet.VICRegLoss], ids=lambda c: c.__name__)
def test_an_illness_is_noticed_within_50_steps(kind: type[nn.Module], illness: Callable[[Run], None]) -> None:
    run, doctor = Run(kind(slices=64) if kind is reglet.VISRegLoss else kind(), seed=0), Doctor(action="raise")
    for _ in range(SICK_FROM):
        run.step(doctor)
    illness(run)
    with pytest.raises(SickError) as caught:
        run.steps(50, doctor)
    assert caught.value.verdict.name in ILLNESSES[illness]


@pytest.mark.parametrize(
    "loss",
    [
        lambda: reglet.VISRegLoss(slices=64),
        lambda: reglet.VICRegLoss(),
        lambda: reglet.BarlowTwinsLoss(),
        lambda: reglet.LeJEPALoss(slices=64),
    ],
    ids=["visreg", "vicreg", "barlow", "lejepa"],
)
def test_a_healthy_run_gives_no_alarm(loss: Callable[[], nn.Module]) -> None:
    """benchmarks/doctor.py repeats it with 20 runs."""
    run, doctor = Run(loss(), seed=1), Doctor(action="raise")
    for _ in range(300):
        run.step(doctor)
    assert len(doctor.timeline) >= 9
    assert {row["verdict"] for row in doctor.timeline} <= {"healthy", "suspicion"}


@pytest.mark.parametrize("alone", [True, False])
def test_the_class_token_of_a_fresh_transformer_gives_no_alarm(alone: bool) -> None:
    """From the first step on: its spread is 0.03 to 0.08 of its size, and it moves from step to step."""
    torch.manual_seed(0)
    net = ViT(dim=32, depth=3, heads=2, size=8, patch=2, in_channels=1)
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
    projector = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    loss, doctor = reglet.VISRegLoss(slices=64), Doctor(every=5, grace=0, action="raise")
    optimizer = torch.optim.AdamW([*net.parameters(), *projector.parameters()], lr=3e-3)
    seen: list[Tensor] = []
    net.blocks[-1].register_forward_hook(lambda _m, _a, out: seen.append(out[:, 0]))
    for _ in range(45):
        x = X[torch.randint(len(X), (32,))].view(-1, 1, 8, 8)
        seen.clear()
        z = [projector(net(x + 0.2 * torch.randn_like(x))) for _ in range(2)]
        terms = loss.terms(*z)
        total: Any = sum(terms.values())
        if alone:
            doctor.observe(seen, loss=total)
        else:
            doctor.observe(z, features=seen[0], terms=terms, model=loss)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    assert min(float(row["features.spread"]) for row in doctor.timeline) < 0.05


@pytest.mark.parametrize(
    ("views", "begins", "sure_below"),
    [
        (None, 0.5, 0.05),  # below 0.05 features have collapsed, if they varied more before
        (None, 0.1, 0.02),  # features that never varied more: below a fifth of what they had
        (2.0, 0.5, 0.05),  # embeddings beside them that hardly tell images apart
        (0.2, 0.5, 0.005),  # embeddings that do: below 0.005 in any case
    ],
)
def test_a_slow_collapse_is_noticed(views: float | None, begins: float, sure_below: float) -> None:
    """The spread halves every 50 steps: an alarm within 50 steps after the threshold, and none before it."""
    torch.manual_seed(0)
    images, doctor = torch.randn(128, 16), Doctor(grace=25, action="stop")
    shared = images.square().sum(1).mean().sqrt() * nn.functional.normalize(torch.ones(16), dim=0)
    spread = begins
    for step in range(600):
        spread = begins * 0.5 ** (step / 50)
        features = shared + spread * (images + 0.05 * torch.randn_like(images))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoctorWarning)
            if views is None:
                doctor.observe(features)
            else:
                z = [shared + spread * (images + views * torch.randn_like(images)) for _ in range(2)]
                doctor.observe(z, features=features)
        if doctor.stop:
            break
    assert doctor.stop
    assert doctor.verdict is not None
    assert doctor.verdict.name == "complete collapse"
    passed = 50 * math.log2(begins / sure_below)
    assert passed <= step + 1 <= passed + 50


def with_odds(odds: float) -> float:
    return odds / (1 + odds)


MISTYPED: dict[str, Callable[[float], nn.Module]] = {
    "visreg": lambda by: reglet.VISRegLoss(slices=64, lam=with_odds(by)),
    "lejepa": lambda by: reglet.LeJEPALoss(slices=64, lam=with_odds(0.05 * by)),
    "vicreg": lambda by: reglet.VICRegLoss(variance=25 * by, covariance=by),
    "barlow": lambda by: reglet.BarlowTwinsLoss(weight=5e-3 * by),
}


@pytest.mark.parametrize("by", [100.0, 0.01])
@pytest.mark.parametrize("name", MISTYPED)
def test_a_mistyped_weight_is_put_right_within_a_factor_of_two(name: str, by: float) -> None:
    """The weights that the alarm names, against those that a run with the right weight has named at its first step.

    Where there is no alarm, the doctor is asked.
    """
    run, doctor = Run(MISTYPED[name](1.0), seed=0), Doctor()
    run.step(doctor)
    right = doctor.weights(run.loss, at="start")
    run, doctor = Run(MISTYPED[name](by), seed=0), Doctor(every=10, grace=20, action="raise")
    named, alarm = doctor.weights(run.loss, at="start"), ""
    try:
        run.steps(40, doctor)
        named = doctor.weights(run.loss, at="start")
    except SickError as error:
        alarm = error.verdict.name
        named = {word: float(value) for word, value in re.findall(r"(\w+)=([0-9.e+-]+) ", str(error))}
    assert list(named) == list(right)
    if "lam" in right:  # as odds of the two sides
        named, right = ({"lam": each["lam"] / (1 - each["lam"])} for each in (named, right))
    for word, value in right.items():
        assert 0.5 < named[word] / value < 2, (alarm, named, right)
    if (name, by) in (("visreg", 100.0), ("barlow", 0.01)):
        assert "regularizer" in alarm


def same_and_own_slices(rank: int, world: int) -> list[str]:
    torch.manual_seed(rank)
    names = []
    for shared in (True, False):
        loss = reglet.VISReg(slices=32, shared_slices=shared)
        doctor = Doctor(every=1, grace=0, keep=64, action="stop")
        for _ in range(12):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DoctorWarning)
                doctor.observe(torch.randn(128, 16), model=loss)
        assert doctor.verdict is not None
        names.append(doctor.verdict.name if doctor.stop else "healthy")
    return names


def test_ranks_that_draw_the_same_slices_are_noticed(tmp_path: Path) -> None:
    found = ranks.run("tests.test_doctor_watch:same_and_own_slices", world=2, folder=tmp_path)
    assert found == [["ranks draw the same slices", "healthy"]] * 2


def same_slices_from_the_middle(rank: int, world: int) -> tuple[str, int]:
    """The disease and the step of the alarm, counted from the moment in which ranks begin to share their slices."""
    torch.manual_seed(0)
    run = Run(reglet.VISRegLoss(slices=32, shared_slices=False), seed=0)
    run.generator.manual_seed(rank)  # other samples on each rank
    doctor = Doctor(grace=50, action="raise")
    run.steps(80, doctor)
    for part in run.loss.modules():
        if isinstance(part, Slices):
            part.shared = True
    for step in range(1, 51):
        try:
            run.step(doctor)
        except SickError as error:
            return error.verdict.name, step
    return "nothing", 50


def test_ranks_that_begin_to_draw_the_same_slices_are_noticed(tmp_path: Path) -> None:
    found = ranks.run("tests.test_doctor_watch:same_slices_from_the_middle", world=2, folder=tmp_path)
    assert found[0] == found[1]
    assert found[0][0] == "ranks draw the same slices"
    assert found[0][1] <= 50


def collapsed() -> Tensor:
    return torch.ones(64, 8) + 1e-4 * torch.randn(64, 8)


def test_it_warns_once_with_cause_and_next_step() -> None:
    doctor = Doctor(every=2, grace=0)
    with pytest.warns(DoctorWarning) as caught:
        [doctor.observe(collapsed()) for _ in range(40)]
    assert len(caught) == 1
    assert str(caught[0].message).startswith("step 4: complete collapse. Seen: all images get nearly the same features")
    assert "Do: raise the regularizer's weight" in str(caught[0].message)
    assert not doctor.stop


def test_one_look_is_not_enough() -> None:
    doctor = Doctor(every=10, grace=0, keep=64, action="raise")
    for step in range(40):
        doctor.observe(collapsed() if step == 9 else torch.randn(64, 8))
    assert [row["verdict"] for row in doctor.timeline] == ["suspicion", "healthy", "healthy", "healthy"]
    assert [row["step"] for row in doctor.timeline] == [10, 15, 25, 35]


def test_it_waits_for_the_grace_to_end() -> None:
    doctor = Doctor(every=5, grace=30, action="raise")
    for _ in range(29):
        assert doctor.observe(collapsed()) is None
    assert doctor.observe(collapsed()) is not None


def test_it_keeps_no_more_than_it_needs() -> None:
    doctor = Doctor(every=50, grace=0, keep=128)
    for _ in range(49):
        doctor.observe(torch.randn(2, 64, 8))
    kept = doctor._kept["embeddings"]
    assert [tuple(rows.shape) for rows in kept] == [(64, 2, 8)]  # the next step brings the other half


def test_a_run_that_was_interrupted_is_watched_on() -> None:
    """The state of one doctor, given to another in the middle: the same looks and verdicts."""
    torch.manual_seed(0)
    steps = [torch.randn(64, 8) if i < 20 else collapsed() for i in range(40)]
    whole, first, second = (Doctor(every=7, grace=0, keep=64, action="stop") for _ in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoctorWarning)
        for i, z in enumerate(steps):
            loss = z.square().mean()
            whole.observe(z, loss=loss)
            if i == 23:
                second.restore(first.state())
            (first if i < 23 else second).observe(z, loss=loss)
    assert [*first.timeline, *second.timeline] == whole.timeline
    assert whole.stop
    assert second.stop


def test_the_gradient_is_left_alone() -> None:
    """Observing changes neither value nor gradient."""
    z = [torch.randn(64, 8, requires_grad=True) for _ in range(2)]
    loss = reglet.VICRegLoss()
    plain = torch.autograd.grad(loss(*z), z)
    terms = loss.terms(*z)
    Doctor(every=1, grace=0).observe(z, terms=terms)
    assert all(a.grad is None for a in z)
    watched = torch.autograd.grad(torch.stack(list(terms.values())).sum(), z)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"every": 0}, "every is a whole number of at least 1, got 0"),
        ({"keep": 1}, "keep is a whole number of at least 2, got 1"),
        ({"action": "shout"}, "action is one of warn, stop, raise; got 'shout'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Doctor(**arguments)
    with pytest.raises(ValueError, match=r"embeddings are \(n, d\)"):
        Doctor().observe(torch.zeros(3))
    with pytest.raises(ValueError, match="share is between 0 and 1"):
        Doctor().advice(share=1.5)


def test_what_is_no_embedding_says_so_and_is_no_step() -> None:
    doctor = Doctor()
    for wrong, kind, says in (
        (torch.zeros(4, 3, 8, 8), ValueError, r"embeddings are \(n, d\), or views of them; got \[\(4, 3, 8, 8\)\]"),
        ([torch.zeros(1, 8)], ValueError, r"of at least 2 samples; got \[\(1, 8\)\]"),
        (torch.zeros(4, 8, dtype=torch.int64), TypeError, r"as floating-point tensors; got \['torch.int64'\]"),
        ([], ValueError, r"got \[\]"),
    ):
        with pytest.raises(kind, match=says):
            doctor.observe(wrong)
    with pytest.raises(ValueError, match=r"features must be .*\(4, 3, 8\)"):
        doctor.observe(torch.zeros(4, 8), features=torch.zeros(4, 3, 8))
    assert doctor.step == 0


def test_a_classifier_needs_few_directions() -> None:
    """Features that are three clusters and nothing else: sick for an encoder, right for a classifier of three."""
    torch.manual_seed(0)
    z = torch.eye(64)[torch.arange(128) % 3] + 1e-3 * torch.randn(128, 64)
    names = [Doctor(every=1, grace=0, keep=2, classes=classes).observe(z).name for classes in (None, 3)]  # type: ignore[union-attr]
    assert names == ["dimensional collapse", "healthy"]
