"""SER on a small ViT: base, lambda = 0, SER, and SER as released, which sends no gradient.

Paper     the paper on soft equivariance regularization (SER), tables 1, 4 and 8
Command   python -m recipes.ser
Printed   ImageNet-1k, ViT-S/16, linear probe, base -> + SER: MoCo-v3 68.44 -> 69.28 (lambda = 0: 68.82), DINO 67.37 ->
          67.63, Barlow Twins 63.34 -> 64.02; equivariance scores of MoCo-v3 for turns, flips and scale .804 .870 .945
          -> .840 .881 .945; turns read by a probe from SER's layers 1, 3, 6, 9, 12: 79.97 93.34 99.52 99.73 96.59
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
