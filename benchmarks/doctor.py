"""The doctor beside a training: alarms in sick and in healthy runs, whether the sick ones are, and what looking costs.

python -m benchmarks.doctor          all of it
python -m benchmarks --only doctor   what looking costs
"""

import time
import warnings
from collections.abc import Callable, Iterator
from statistics import median

import torch
from sklearn.datasets import load_digits
from tests.test_doctor_watch import ILLNESSES, SICK_FROM, Run, mistyped_rate
from torch import Tensor, nn

import reglet
from benchmarks.rows import Row, at_most
from reglet.backbones import ConvNet, resnet8, resnet18
from reglet.diagnostics import rankme
from reglet.doctor import Doctor, DoctorWarning
from reglet.probes import knn_probe, linear_probe

_digits = load_digits()
DIGITS, LABELS = torch.tensor(_digits.data, dtype=torch.float32) / 16, torch.tensor(_digits.target)

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "visreg": lambda: reglet.VISRegLoss(slices=64),
    "vicreg": lambda: reglet.VICRegLoss(),
    "barlow": lambda: reglet.BarlowTwinsLoss(),
    "lejepa": lambda: reglet.LeJEPALoss(slices=64),
}


def alarms(loss: Callable[[], nn.Module], seed: int, *, steps: int, illness: Callable[[Run], None] | None) -> list[int]:
    """Steps after the illness, or of the run, at which the doctor was first sure."""
    run, doctor = Run(loss(), seed), Doctor(action="stop")
    for step in range(steps):
        if illness is not None and step == SICK_FROM:
            illness(run)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoctorWarning)
            run.step(doctor)
        if doctor.stop:
            return [step + 1 - (SICK_FROM if illness else 0)]
    return []


def score(run: Run) -> dict[str, float]:
    """Of the encoder's features on digits that it was not trained on."""
    run.encoder.eval()
    with torch.no_grad():
        x = run.encoder(DIGITS)
    run.encoder.train()
    if not bool(x.isfinite().all()):
        return dict.fromkeys(("knn", "linear", "rank"), float("nan"))
    parts = (x[:1200], LABELS[:1200], x[1200:], LABELS[1200:])
    linear = linear_probe(*parts, strengths=(1e-2,)).accuracy
    return {"knn": knn_probe(*parts), "linear": linear, "rank": rankme(x[1200:])}


def suffers(loss: Callable[[], nn.Module], seed: int, *, steps: int = 300) -> list[dict[str, float]]:
    """Scores at the illness, after 50 steps and after `steps`: with a learning rate times 100, then without."""
    rows = []
    for sick in (True, False):
        run = Run(loss(), seed)
        for step in range(SICK_FROM + steps):
            if step == SICK_FROM and sick:
                rows.append(score(run))
                mistyped_rate(run)
            if step == SICK_FROM + 50:
                rows.append(score(run))
            run.step(None)
        rows.append(score(run))
    return rows


def cost(build: Callable[[], tuple[nn.Module, int]], x: Tensor, *, steps: int = 50) -> float:
    """The doctor's time as a share of a training's: two views of `x`, VISReg, AdamW, two looks in 50 steps."""
    torch.manual_seed(0)
    net, width = build()
    head, loss, doctor = nn.Linear(width, 256), reglet.VISRegLoss(slices=256), Doctor(grace=0)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-4)
    spent = whole = 0.0
    for step in range(-3, steps):  # the first three warm up
        began = time.perf_counter()
        features = net(torch.cat([x + 0.1 * torch.randn_like(x), x.flip(3)]))
        z = list(head(features).chunk(2))
        terms = loss.terms(*z)
        looks = time.perf_counter()
        if step >= 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DoctorWarning)  # these are no images
                doctor.observe(z, features=features[: len(x)], terms=terms, model=loss)
            spent += time.perf_counter() - looks
        optimizer.zero_grad()
        sum(terms.values()).backward()  # type: ignore[union-attr]
        optimizer.step()
        whole += (time.perf_counter() - began) * (step >= 0)
    assert len(doctor.timeline) == 2
    return spent / (whole - spent)


def run() -> Iterator[Row]:
    """Of 50 steps with two looks, the doctor's time over that of the rest, in per cent."""
    for what, build, x in NETWORKS[:0:-1]:
        name, _, size = what.partition(", ")
        times = 5 if x.shape[2] < 32 else 1  # the others take a minute each, and 0.1 %
        shares = [100 * cost(build, x) for _ in range(times)]
        low, high = min(shares), max(shares)
        yield at_most(f"Doctor, {name}", size, "% of a step", median(shares), 1.0, low=low, high=high)


def main() -> None:
    false = {
        name: sum(bool(alarms(loss, s, steps=400, illness=None)) for s in range(5)) for name, loss in LOSSES.items()
    }
    print("false alarms in 5 healthy runs of 400 steps each:", false, flush=True)
    for illness in ILLNESSES:
        found = [
            alarms(loss, seed, steps=SICK_FROM + 60, illness=illness) for loss in LOSSES.values() for seed in (0, 1)
        ]
        steps = [each[0] if each else None for each in found]
        print(f"{illness.__name__}: steps until the alarm in 8 runs:", steps, flush=True)
    print(
        "does a learning rate times 100 harm the features? at the change; after 50 and 300 steps; the same without it"
    )
    for name, loss in LOSSES.items():
        for seed in range(3):
            rows = suffers(loss, seed)
            shown = [f"kNN {r['knn']:.1%} linear {r['linear']:.1%} rank {r['rank']:.0f}" for r in rows]
            print(f"  {name} {seed}:", " | ".join(shown), flush=True)
    for row in run():
        print(f"{row.name}, {row.size}: {row.low:.2f} to {row.high:.2f} % of a step", flush=True)


NETWORKS: list[tuple[str, Callable[[], tuple[nn.Module, int]], Tensor]] = [
    ("ResNet-18, batch 64, 32 x 32", lambda: (resnet18(stem="cifar"), 512), torch.rand(64, 3, 32, 32)),
    ("ResNet-8, batch 256, 32 x 32", lambda: (resnet8(), 64), torch.rand(256, 3, 32, 32)),
    ("ConvNet, batch 256, 16 x 16", lambda: (ConvNet(), 128), torch.rand(256, 3, 16, 16)),
]


if __name__ == "__main__":
    main()
