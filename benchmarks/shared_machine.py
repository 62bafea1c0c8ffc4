"""Training on a machine that is shared: how torch's threads wait decides how much of it is left.

An OpenMP thread that has nothing to do spins for some milliseconds before it sleeps.  On a machine of one's own that
saves the waking; beside other work it takes the core from a thread that computes.  Each speed is measured in a process
of its own, because the policy is read when torch is loaded: alone, and beside as many busy processes as there are CPUs.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.rows import Row, at_least
from benchmarks.timing import spread

BUSY = "while True: pass"
POLICIES: dict[str, dict[str, str]] = {
    "torch's own": {},
    "spin 10,000": {"GOMP_SPINCOUNT": "10000"},
    "spin 4,000": {"GOMP_SPINCOUNT": "4000"},
    "spin 2,500": {"GOMP_SPINCOUNT": "2500"},
    "spin 1,000": {"GOMP_SPINCOUNT": "1000"},
    "spin 100": {"GOMP_SPINCOUNT": "100"},
    "passive": {"OMP_WAIT_POLICY": "passive"},
}
OWN, CHOSEN = "torch's own", "spin 2,500"  # the second is that of reglet.cli.dispatch.choose_waiting
CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def pretrain() -> Callable[[], object]:
    """A step of VISReg on the built-in conv net, 64 images of 32 px in two views."""
    import torch

    import reglet
    from reglet.backbones import build

    net, loss = build("convnet_deep", size=32), reglet.VISRegLoss(slices=256)
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(128, 3, 32, 32)

    def step() -> None:
        optimizer.zero_grad()
        loss(*net(x).chunk(2)).backward()
        optimizer.step()

    return step


def sliced() -> Callable[[], object]:
    """VISReg alone, forward and backward, on its pinned threads."""
    import torch

    import reglet

    loss, z = reglet.VISRegLoss(slices=1024), torch.randn(2, 256, 512, requires_grad=True)
    return lambda: loss(z).backward()


SUBJECTS: dict[str, Callable[[], Callable[[], object]]] = {"pretrain": pretrain, "sliced": sliced}


def rate(subject: str, policy: str, *, busy: int, seconds: float) -> float:
    """Steps a second, in a new process."""
    env = {key: value for key, value in os.environ.items() if key not in CHOSEN_BY_USER} | POLICIES[policy]
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        command = [sys.executable, "-m", "benchmarks.shared_machine", "--steps-of", subject, "--seconds", str(seconds)]
        return float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    finally:
        for other in others:
            other.kill()
            other.wait()


def count(subject: str, seconds: float) -> float:
    from reglet import keep_freed_memory

    keep_freed_memory()  # as the command does
    step = SUBJECTS[subject]()
    for _ in range(3):
        step()
    start, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        step()
        done += 1
    return done / passed


def run(*, seconds: float = 3.0, rounds: int = 8) -> Iterator[Row]:
    """What the command chooses beside torch's own waiting, taking turns: on a quiet machine, and beside others.

    A fair share is half of the speed that torch's own waiting has alone, where as many busy processes as CPUs run.
    """
    cpus = os.cpu_count() or 1
    for subject in SUBJECTS:
        alone: dict[str, list[float]] = {OWN: [], CHOSEN: []}
        for _ in range(rounds):
            for policy, found in alone.items():
                found.append(rate(subject, policy, busy=0, seconds=seconds))
        quiet = spread([b / a for a, b in zip(alone[OWN], alone[CHOSEN], strict=True)])
        fair = spread(alone[OWN]).median / 2
        beside = spread([rate(subject, CHOSEN, busy=cpus, seconds=seconds) / fair for _ in range(rounds)])
        where, low, high = (subject, f"{cpus} CPUs"), quiet.low, quiet.high
        yield at_least(*where, "quiet, of torch's own speed", quiet.median, 0.97, low=low, high=high)
        yield at_least(*where, f"beside {cpus}, of fair share", beside.median, 0.8, low=beside.low, high=beside.high)


def table(policies: list[str], seconds: float) -> Iterator[str]:
    cpus = os.cpu_count() or 1
    yield f"{'':10} {'waiting':12} {'alone':>10} {f'beside {cpus}':>10} {'of fair share':>14}"
    for subject in SUBJECTS:
        for policy in policies:
            alone, beside = (rate(subject, policy, busy=busy, seconds=seconds) for busy in (0, cpus))
            yield f"{subject:10} {policy:12} {alone:8.2f}/s {beside:8.2f}/s {beside / (alone / 2):14.0%}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps-of", choices=SUBJECTS)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    given = parser.parse_args()
    if given.steps_of:
        print(count(given.steps_of, given.seconds))
    else:
        for line in table(given.policies, given.seconds):
            print(line, flush=True)
