"""Speed of the losses, forward and backward, beside the naive formula, lightly and a plain matrix product."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks import machine
from benchmarks.deviation import Deviation, deviation, value_and_gradient
from benchmarks.peers import lightly_losses, slices
from benchmarks.rows import Row, at_least
from benchmarks.subjects import Loss, Subject, directions, subject
from benchmarks.timing import Clock, Ratio, Rounds, Step, forward_backward, interleave

# Nothing is timed against a peer whose value or gradient differs by more.  Not less for the gradient, because float32
# orders some nearly equal projections differently from one implementation to the next: see docs/conformance.md.
AGREE = Deviation(value=1e-4, gradient=5e-3)


@dataclass(frozen=True)
class Case:
    """A subject at a size.  `flops` is what its cheapest exact algorithm multiplies, forward and backward."""

    subject: Subject
    title: str
    size: str
    shape: tuple[int, int, int]
    flops: float = 0.0
    target: float | None = None
    rival: Subject | None = None  # timed in lightly instead of the subject itself

    @property
    def n_global(self) -> int:
        return 2


def cases() -> list[Case]:
    """The table of issue 2.  Products are counted as two operations."""
    wide, tall = (2, 256, 8192), (2, 1024, 512)
    barlow, vicreg = subject("BarlowTwinsLoss"), subject("VICRegLoss")
    found = []
    for shape, targets in ((wide, (45.0, 95.0)), (tall, (1.0, 1.0))):
        _, n, d = shape
        size = f"n {n}, d {d}"
        found += [
            Case(barlow, "Barlow Twins", size, shape, min(8 * n * n * d, 6 * n * d * d), targets[0]),
            Case(vicreg, "VICReg", size, shape, min(8 * n * n * d, 8 * n * d * d), targets[1]),
        ]
    v, n, d, k = 4, 256, 256, 4096
    for name, title, target in (("VISRegLoss", "VISReg", 5.0), ("SIGReg", "SIGReg", 10.0)):
        size = f"v {v}, n {n}, d {d}, K {k}"
        found.append(Case(subject(name, slices=k), title, size, (v, n, d), 4 * v * n * d * k, target))
    smi, ntxent = subject("SMILoss"), subject("NTXentLoss")
    found.append(Case(smi, "SMI", "n 256, d 8192", wide, 14 * 256**2 * 8192, 8.0, rival=barlow))
    found.append(Case(ntxent, "NT-Xent", "n 256, d 256", (2, 256, 256), 16 * 256**3, 1.3))
    return found


def run(*, budget: float = 60.0, clock: Clock = time.perf_counter) -> Iterator[Row]:
    """`budget`: seconds at most for a case, once there were five rounds."""
    torch.manual_seed(0)
    for case in cases():
        yield from measure(case, budget=budget, clock=clock)


def measure(case: Case, *, budget: float, clock: Clock) -> Iterator[Row]:
    steps = steps_of(case)
    steps["matmul"], flops = machine.matmul()
    rounds = interleave(steps, budget=budget, clock=clock)
    if "lightly" in steps:
        yield _faster(case, rounds)
    yield _row(case, "times faster than", rounds.ratio("naive", "reglet"), against="naive")
    yield _row(case, "share of matmul rate", rounds.ratio("matmul", "reglet", scale=case.flops / flops))
    yield _row(case, "milliseconds", rounds.median("reglet", scale=1e3))


def steps_of(case: Case) -> dict[str, Step]:
    """Forward and backward of reglet, of the formula and of lightly, after making sure that they agree."""
    inputs = _inputs(case)
    found = _contestants(case, inputs)
    return {name: forward_backward(_spread(loss, case), *inputs) for name, loss in found.items()}


def _faster(case: Case, rounds: Rounds) -> Row:
    ratio = rounds.ratio("lightly", "reglet")
    against = "lightly" if case.rival is None else "lightly Barlow"
    if case.target is None:
        return _row(case, "times faster than", ratio, against=against)
    return at_least(
        case.title,
        case.size,
        "times faster than",
        ratio.median,
        case.target,
        against=against,
        low=ratio.low,
        high=ratio.high,
    )


def _row(case: Case, metric: str, found: Ratio, *, against: str = "") -> Row:
    return Row(case.title, case.size, metric, found.median, against=against, low=found.low, high=found.high)


def _inputs(case: Case) -> list[Tensor]:
    """Slices are drawn for all views at once, so those come as one tensor; pairs as two.

    Views of a sample resemble each other, and features correlate, as in training.
    """
    v, n, d = case.shape
    base = torch.randn(n, d) + torch.randn(n, 16) @ torch.randn(16, d) / 4
    z = 0.5 * base + torch.randn(v, n, d)
    return [z] if v > 2 else list(z)


def _contestants(case: Case, inputs: list[Tensor]) -> dict[str, Loss]:
    loss = case.subject.make()
    found = {"reglet": case.subject.ours(loss), "naive": case.subject.formula}
    w = directions(loss, inputs[0])
    lightly, rival = lightly_losses(), case.rival or case.subject
    if lightly is not None and rival.peer is not None and rival.peer_takes(case.shape[0], case.n_global):
        found["lightly"] = rival.peer(lightly)
    ours = value_and_gradient(_spread(found["reglet"], case), *inputs)
    for name in ("naive", "lightly"):
        if name not in found or (name == "lightly" and case.rival is not None):
            continue
        with slices(w):
            other = value_and_gradient(_spread(found[name], case), *inputs)
        apart = deviation(ours, other)
        if apart.value > AGREE.value or apart.gradient > AGREE.gradient:
            raise AssertionError(f"{case.title}, {case.size}: reglet and {name} differ by {apart}")
    return found


def _spread(loss: Loss, case: Case) -> Callable[..., Tensor]:
    """A function of the input tensors: one (v, n, d), or several (n, d)."""
    g = case.n_global
    return lambda *inputs: loss(inputs[0] if inputs[0].ndim == 3 else inputs, g)
