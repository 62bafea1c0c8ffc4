"""Which layer SER stands at, and which transforms it draws.

Paper     the paper on soft equivariance regularization (SER), tables 4 and 9
Command   python -m recipes.ser_ablation
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from recipes import arms
from recipes.vit_encoder import arguments, table

SER = {"wrapper": "ser"}
ARMS: dict[str, dict[str, Any]] = {
    "lambda = 0": SER | {"weight": 0.0},
    "layer 1": SER | {"layer": 1},
    "layer 2": SER | {"layer": 2},
    "layer 3": SER,
    "layer 6": SER | {"layer": 6},
    "without turns": SER | {"turns": False},
    "without flips": SER | {"flips": False},
    "without scale": SER | {"scales": False},
}
REFERENCE = {arm: "layer 3" if arm.startswith("without") else "lambda = 0" for arm in ARMS if arm != "lambda = 0"}


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments("ser_ablation", "layers and transforms of SER", epochs=3)
    return arms.main(partial(table, ARMS, REFERENCE), parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
