"""What bfloat16 autocast does to each loss, in a process of its own.

On some CPUs a bfloat16 product ends in an illegal instruction, unless oneDNN is told before it starts to use an older
instruction set; hence the process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict

import torch
from torch import Tensor

from benchmarks.agreement import SEEDS, SIZES, SLICES, Size, largest
from benchmarks.deviation import Deviation, deviation, value_and_gradient
from benchmarks.peers import slices
from benchmarks.subjects import Loss, Subject, directions

SAFE = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}


def under_autocast(
    *, sizes: Iterable[Size] = SIZES, seeds: int = SEEDS, count: int = SLICES
) -> tuple[dict[str, Deviation | None], dict[str, Deviation | None]]:
    """From the formula in float64: reglet under autocast, and for comparison the naive formula under the same."""
    request = json.dumps({"sizes": [asdict(size) for size in sizes], "seeds": seeds, "count": count})
    command = [sys.executable, "-m", "benchmarks.autocast", request]
    done = subprocess.run(command, env=os.environ | SAFE, check=True, capture_output=True, text=True)
    ours, naive = json.loads(done.stdout.splitlines()[-1])
    return _parsed(ours), _parsed(naive)


def _ours(subject: Subject, size: Size, z: Tensor) -> Deviation:
    loss = subject.make()
    return _compare(subject, size, z, subject.ours(loss), directions(loss, z), drawn=False)


def _naive(subject: Subject, size: Size, z: Tensor) -> Deviation | None:
    """None where the formula factors a matrix that rounding has made indefinite."""
    try:
        return _compare(subject, size, z, subject.formula, directions(subject.make(), z), drawn=True)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return None


def _compare(subject: Subject, size: Size, z: Tensor, loss: Loss, w: Tensor | None, *, drawn: bool) -> Deviation:
    """`drawn`: the loss takes its slices from torch.randn and has to be given them."""
    with slices(w if drawn else None):
        found = value_and_gradient(lambda z: _cast(loss, z, size.n_global), z)
    with slices(w):
        return deviation(found, value_and_gradient(lambda z: subject.formula(z, size.n_global), z.double()))


def _cast(loss: Loss, z: Tensor, n_global: int) -> Tensor:
    """The forward pass alone, as torch's manual has it: backward runs outside."""
    with torch.autocast("cpu", torch.bfloat16):
        return loss(z, n_global)


def _parsed(found: dict[str, dict[str, float] | None]) -> dict[str, Deviation | None]:
    return {name: None if numbers is None else Deviation(**numbers) for name, numbers in found.items()}


def main() -> None:
    request = json.loads(sys.argv[1])
    sizes = [Size(**size) for size in request["sizes"]]
    torch.set_num_threads(1)
    found = [
        largest(compare, sizes=sizes, seeds=request["seeds"], count=request["count"]) for compare in (_ours, _naive)
    ]
    print(json.dumps([{name: apart and asdict(apart) for name, apart in one.items()} for one in found]))


if __name__ == "__main__":
    main()
