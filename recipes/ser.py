"""SER on a small ViT: base, lambda = 0, SER, and SER as released, which sends no gradient.

Paper     the paper on soft equivariance regularization (SER), tables 1, 4 and 8
Command   python -m recipes.ser
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from recipes import arms
from recipes.vit_encoder import arguments, table

ARMS: dict[str, dict[str, Any]] = {
    "random weights": {"epochs": 0},
    "base": {},
    "lambda = 0": {"wrapper": "ser", "weight": 0.0},
    "SER": {"wrapper": "ser"},
    "SER as released": {"wrapper": "ser", "grad_mode": "released"},
}
REFERENCE = {"lambda = 0": "base", "SER": "lambda = 0", "SER as released": "lambda = 0"}


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments("ser", "SER on a small ViT and CIFAR-10", epochs=5)
    return arms.main(partial(table, ARMS, REFERENCE), parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
