"""Several small runs: two processes of one thread each (`jobs=2`) against one process of two threads (`jobs=1`).

Whole commands, start of the processes and reading of the data too, by turns.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks.rows import Row
from benchmarks.timing import spread

SEEDS = 4
TASKS = {
    "audio": ("steps=60", "batch=32"),
    "series-ssl": ("steps=60", "batch=64"),
}


def seconds(task: str, *, jobs: int) -> float:
    """Of the command, with two threads in all."""
    threads = os.environ | {"OMP_NUM_THREADS": str(2 // jobs)}
    with tempfile.TemporaryDirectory() as out:
        words = [f"task={task}", *TASKS[task], f"seeds={SEEDS}", f"jobs={jobs}", "accelerator=cpu", f"out={out}/a"]
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "reglet.cli", "train", *words], env=threads, capture_output=True, check=True
        )
        return time.perf_counter() - start


def run(rounds: int = 5) -> Iterator[Row]:
    for task, words in TASKS.items():
        ratios = [seconds(task, jobs=1) / seconds(task, jobs=2) for _ in range(rounds)]
        found = spread(ratios)
        size = f"{SEEDS} runs, {words[0]}"
        yield Row(
            task, size, "times faster", found.median, against="than jobs=1, 2 threads", low=found.low, high=found.high
        )
