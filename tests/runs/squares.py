"""An experiment of nothing, for the tests of the runner: squares of numbers, in a process of its own."""

import os
import sys
import time
from functools import partial
from pathlib import Path

from reglet.runs import Finished, Run, execute


def load(path: Path) -> int:
    with path.with_name("reads").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return int(path.read_text())


def compute(run: Run, offset: int) -> dict[str, float]:
    time.sleep(run.settings["sleep"])
    x = run.settings["x"]
    if x == 99:
        raise ValueError("ninety-nine")
    return {"y": x**2 + offset, "process": os.getpid()}


def plan(numbers: list[int], *, sleep: float = 0.0) -> list[Run]:
    return [Run("square", 0, settings={"x": x, "sleep": sleep}) for x in numbers]


def squares(folder: Path, numbers: list[int], *, jobs: int = 2, sleep: float = 0.0) -> list[Finished]:
    path = folder / "data"
    if not path.exists():
        path.write_text("1000")
    return execute(plan(numbers, sleep=sleep), compute, load=partial(load, path), out=folder / "out", jobs=jobs)


if __name__ == "__main__":
    squares(Path(sys.argv[1]), list(range(20)), sleep=0.1)
