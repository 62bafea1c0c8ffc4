"""Peak extra memory of a step, as the kernel counted it, in a process of its own.

The child warms the step up, resets the kernel's high-water mark of its resident memory (/proc/self/clear_refs), runs
the step once more and reads the mark.  So every allocator counts, torch's, numpy's and the BLAS library's scratch
space, and nothing can fall between two samples.  glibc would hide a peak by serving it from memory that it kept; the
child therefore starts with a fixed threshold above which an allocation is mapped when made and unmapped when freed.
`calibrate` measures a step whose peak is known, so a kernel on which this does not hold is noticed.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.timing import Step

ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}
REPEATS = 9
CALIBRATION = 24 << 20  # bytes
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def available() -> bool:
    return _STATUS.exists() and os.access(_RESET, os.W_OK)


def peak(case: str, size: int) -> int:
    """Bytes that the step `module:function(size)` takes at its peak beyond what was resident before it."""
    command = [sys.executable, "-m", "benchmarks.memory", case, str(size)]
    done = subprocess.run(command, env=os.environ | ENVIRONMENT, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def calibrate() -> float:
    """Measured over true peak of a step that holds a tensor and a numpy array at once; 1 if the method holds."""
    return peak("benchmarks.memory:known", CALIBRATION) / CALIBRATION


def known(size: int) -> Step:
    """Holds `size` bytes: half a tensor, half a numpy array."""

    def step() -> None:
        half = torch.ones(size // 2, dtype=torch.uint8)
        half.numpy().copy()

    return step


def _measure(step: Step) -> int:
    """The largest of a few, because threads do not hold theirs at the same time in every one."""
    for _ in range(3):
        step()
    peaks = []
    for _ in range(REPEATS):
        before = resident()
        _RESET.write_text("5")
        step()
        peaks.append(resident("VmHWM") - before)
    return max(peaks)


def resident(field: str = "VmRSS") -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return 1024 * int(line.split()[1])


def _load(case: str) -> Callable[[int], Step]:
    module, _, function = case.partition(":")
    made: Callable[[int], Step] = getattr(__import__(module, fromlist=[function]), function)
    return made


if __name__ == "__main__":
    print(_measure(_load(sys.argv[1])(int(sys.argv[2]))))
