"""What ran: machine, versions, commit; and how fast this machine multiplies matrices."""

import os
import platform
import subprocess
from pathlib import Path

import numpy
import torch

from benchmarks.peers import lightly_version
from benchmarks.timing import Step

SIDE = 2048


def matmul() -> tuple[Step, float]:
    """A step that multiplies two square float32 matrices, and its floating-point operations.

    As one of the contestants of a round it gives the rate that the machine had to give in that very round.
    """
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    return lambda: a @ b, 2.0 * SIDE**3


def description() -> dict[str, str]:
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "lightly": lightly_version() or "absent",
        "commit": commit(),
    }


def commit() -> str:
    """The short hash, with a + when the sources differ from it."""
    root = Path(__file__).parent.parent
    try:
        name = _git(root, "rev-parse", "--short", "HEAD")
        return name + ("+" if _git(root, "status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout.strip()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
