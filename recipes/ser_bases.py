"""SER on VISReg and on SMI, which no paper has tried, and on MoCo-v3.

Paper     the paper on soft equivariance regularization (SER), table 1, has MoCo-v3, DINO and Barlow Twins
Command   python -m recipes.ser_bases
Printed   MoCo-v3 68.44 -> 69.28, DINO 67.37 -> 67.63, Barlow Twins 63.34 -> 64.02; nothing on VISReg and SMI
Measured  2026-11-16, commit bb0f667, torch 2.13.0, one seed (0) and 40 steps: --seeds 1 --epochs 1 --images 2560
          --batch 64, on cores that others worked on too.  lambda = 0 -> SER; centred scores after the third block.

          base     linear          20-NN           turns           flips           scale
          VISReg   32.05 -> 30.75  27.85 -> 25.55  .422 -> .635    .727 -> .738    .731 -> .785
          SMI      33.50 -> 33.25  28.20 -> 28.90  .385 -> .575    .643 -> .714    .686 -> .754
          MoCo-v3  31.70 -> 30.55  25.95 -> 26.25  .554 -> .650    .761 -> .778    .778 -> .792

Found     One seed has no interval, so nothing is shown.  What to look for at the default size: all nine scores rise, by
          .10 to .21 for turns, which recipes/ser.py did not see on Barlow Twins (+.009 +- .155); its loss is a sum over
          128 features, so lambda = 0.5 may be too small beside it (not tested).  Accuracies decide nothing.
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
