"""SER on VISReg and on SMI, which no paper has tried, and on MoCo-v3.

Paper     the paper on soft equivariance regularization (SER), table 1, has MoCo-v3, DINO and Barlow Twins
Command   python -m recipes.ser_bases
Printed   MoCo-v3 68.44 -> 69.28, DINO 67.37 -> 67.63, Barlow Twins 63.34 -> 64.02; nothing on VISReg and SMI
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from recipes import arms
from recipes.vit_encoder import arguments, table

BASES = ("VISReg", "SMI", "MoCo-v3")
ARMS: dict[str, dict[str, Any]] = {
    f"{base}, {name}": {"base": base, "wrapper": "ser", "weight": weight}
    for base in BASES
    for name, weight in (("lambda = 0", 0.0), ("SER", 0.5))
}
REFERENCE = {f"{base}, SER": f"{base}, lambda = 0" for base in BASES}


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments("ser_bases", "SER on VISReg, SMI and MoCo-v3", epochs=3)
    return arms.main(partial(table, ARMS, REFERENCE), parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
