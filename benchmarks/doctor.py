"""The doctor beside a training: false alarms in 20 healthy runs, and what looking costs.

python -m benchmarks.doctor
"""

import time
import warnings
from collections.abc import Callable

import torch
from tests.test_doctor_watch import ILLNESSES, SICK_FROM, Run
from torch import nn

import reglet
from reglet.doctor import Doctor, DoctorWarning

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


def cost() -> float:
    """Time of a look on 512 embeddings of 256 with four terms, as a share of `every` steps of a ResNet-18, batch 64."""
    from reglet.backbones import resnet18

    net, head, loss = resnet18(stem="cifar"), nn.Linear(512, 256), reglet.VISRegLoss(slices=256)
    x = torch.randn(2 * 64, 3, 32, 32)
    doctor = Doctor(every=1, grace=0, keep=512)
    began = time.perf_counter()
    z = list(head(net(x)).chunk(2))
    sum(loss.terms(*z).values()).backward()  # type: ignore[union-attr]
    step = time.perf_counter() - began
    z = [torch.randn(512, 256, requires_grad=True) for _ in range(2)]
    terms = loss.terms(*z)
    began = time.perf_counter()
    doctor.observe(z, terms=terms)
    return (time.perf_counter() - began) / (Doctor().every * step)


def main() -> None:
    false = {
        name: sum(bool(alarms(loss, s, steps=400, illness=None)) for s in range(5)) for name, loss in LOSSES.items()
    }
    print("false alarms in 5 healthy runs of 400 steps each:", false)
    for illness in ILLNESSES:
        found = [
            alarms(loss, seed, steps=SICK_FROM + 60, illness=illness) for loss in LOSSES.values() for seed in (0, 1)
        ]
        print(f"{illness.__name__}: steps until the alarm in 8 runs:", [each[0] if each else None for each in found])
    cost()
    print(f"a look costs {100 * cost():.2f} % of the steps between two looks")


if __name__ == "__main__":
    main()
