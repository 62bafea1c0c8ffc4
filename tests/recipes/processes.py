"""A recipe of nothing, for the tests of what all recipes share."""

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from recipes import arms


@dataclass(frozen=True)
class Square(arms.Run):
    x: int
    seed: int = 0


def load(path: Path) -> int:
    return int(path.read_text())


def compute(run: Square, offset: int) -> arms.Result:
    time.sleep(0.1)
    if run.x == 99:
        raise ValueError("ninety-nine")
    return {"y": run.x**2 + offset, "process": os.getpid()}


def recipe(options: argparse.Namespace, console: Console) -> None:
    runs = [Square(x) for x in options.x or range(options.seeds)]
    results = arms.execute(runs, compute, load=load, options=options, console=console, shown="y")
    arms.report(options.out, results, [], " ".join(str(r["y"]) for r in results))


def main(words: list[str] | None = None) -> int:
    parser = arms.arguments("squares", "squares of numbers", seeds=20)
    parser.add_argument("--x", type=int, nargs="*")
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
