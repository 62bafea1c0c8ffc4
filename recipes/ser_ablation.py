"""Which layer SER stands at, and which transforms it draws.

Paper     the paper on soft equivariance regularization (SER), tables 4 and 9
Command   python -m recipes.ser_ablation
Printed   MoCo-v3, ViT-S/16, ImageNet-1k, linear probe and scores for turns, flips, scale: none 68.44 .804 .870 .945;
          layer 3 69.28 .840 .881 .945; layer 9 68.72 .888 .886 .957; layer 12 68.18 .924 .892 .957.  Without turns
          69.17, without turns and flips 69.12, without turns and scale 68.67
Measured  Not yet: on 2026-11-16 there was time for its test only (tests/recipes/test_ser.py), which trains its last two
          arms on 128 made-up images.
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
