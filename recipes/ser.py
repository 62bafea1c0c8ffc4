"""SER on a small ViT: base, lambda = 0, SER, and SER as released, which sends no gradient.

Paper     the paper on soft equivariance regularization (SER), tables 1, 4, 5 and 8
Command   python -m recipes.ser
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console

from recipes import arms
from recipes.vit_encoder import Pretraining, compute, load, markdown, summarise

ARMS: dict[str, dict[str, Any]] = {
    "random weights": {"epochs": 0},
    "base": {},
    "lambda = 0": {"wrapper": "ser", "weight": 0.0},
    "SER": {"wrapper": "ser"},
    "SER as released": {"wrapper": "ser", "grad_mode": "released"},
}
REFERENCE = {"lambda = 0": "base", "SER": "lambda = 0", "SER as released": "lambda = 0"}


def plan(options: argparse.Namespace, digest: str) -> list[Pretraining]:
    """Seed by seed, so that whatever is finished is paired; last what should not differ from lambda = 0."""
    first = Pretraining("", 0, options.epochs, digest, base=options.base, batch=options.batch)
    runs = [
        replace(first, arm=arm, seed=seed, **changes) for seed in range(options.seeds) for arm, changes in ARMS.items()
    ]
    return sorted(runs, key=lambda run: run.grad_mode == "released")


def recipe(options: argparse.Namespace, console: Console) -> None:
    runs = plan(options, arms.require_data(options.data))
    work = partial(compute, folder=options.out)
    results = arms.execute(runs, work, load=load, options=options, console=console, shown="linear")
    rows = summarise(results, REFERENCE)
    arms.report(options.out, results, rows, markdown(rows))


def parser() -> argparse.ArgumentParser:
    made = arms.arguments("ser", "SER on a small ViT and CIFAR-10", seeds=3)
    made.add_argument("--base", default="Barlow Twins", help="or MoCo-v3, VISReg, SMI")
    made.add_argument("--epochs", type=int, default=3)
    made.add_argument("--batch", type=int, default=128)
    return made


def main(words: Sequence[str] | None = None) -> int:
    return arms.main(recipe, parser().parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
