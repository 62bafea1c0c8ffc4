"""AugSelf and EquiMod at the final layer and decoupled to the third, on ten classes of Tiny ImageNet.

Paper     the paper on soft equivariance regularization (SER), table 6
Command   python -m recipes.ser_family
Printed   MoCo-v3, ViT-S/16, ImageNet-1k, linear probe, final -> layer 3: EquiMod 68.95 -> 69.51, AugSelf 67.55 -> 68.23
Measured  Not yet: on 2026-11-16 there was time for its test only (tests/recipes/test_ser.py), which trains its last two
          arms on 128 made-up images.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from recipes import arms
from recipes.vit_encoder import arguments, table

DATA = arms.DATA.with_name("tinyimagenet10_jpeg.npz")
ARMS: dict[str, dict[str, Any]] = {
    "base": {},
    "AugSelf, final": {"wrapper": "augself", "layer": 0},
    "AugSelf, layer 3": {"wrapper": "augself"},
    "EquiMod, final": {"wrapper": "equimod", "layer": 0},
    "EquiMod, layer 3": {"wrapper": "equimod"},
    "SER, layer 3": {"wrapper": "ser"},
}
REFERENCE = {arm: "base" if "layer" not in arm else arm.replace("layer 3", "final") for arm in ARMS if arm != "base"}
REFERENCE["SER, layer 3"] = "base"


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments("ser_family", "AugSelf and EquiMod, final and intermediate", epochs=6)
    parser.set_defaults(data=DATA)
    return arms.main(partial(table, ARMS, REFERENCE), parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
