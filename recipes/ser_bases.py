"""SER on VISReg and on SMI, which no paper has tried, and on MoCo-v3.

Paper     the paper on soft equivariance regularization (SER), table 1, has MoCo-v3, DINO and Barlow Twins
Command   python -m recipes.ser_bases
Printed   MoCo-v3 68.44 -> 69.28, DINO 67.37 -> 67.63, Barlow Twins 63.34 -> 64.02; nothing on VISReg and SMI
Design    recipes/ser_encoder.py: a conv net 32-64-128, 3,000 CIFAR-10 images, 3 epochs of 128, 6 for MoCo-v3; SER after
          the second stage with a fifth of the gradient; seeds 1 to 5.  Figures and minutes:
          recipes/summaries/ser_bases.json.
Found     On all four bases the maps follow turns better with SER than with lambda = 0, by 0.11 to 0.12 on a scale where
          lambda = 0 has 0.29 to 0.40, and flips as well, still at the stage after; scale is followed as before.  On
          MoCo-v3 the linear probe gains 1.0 +- 2.5; by rule this is no verdict, because twice the epochs still move the
          base by 2.2 (with 3 epochs by 1.3, and SER gained 0.9 +- 0.4 there).  A probe reads turns no better from SER's
          features: to follow a turn is not to tell it.
Before    A ViT of six blocks (2026-11-16, three seeds) followed turns by 0.13 to 0.20 more on VISReg, SMI and MoCo-v3,
          and gained or lost nothing by a linear probe that could be told; it was below raw pixels.
"""

import sys
from typing import Any

from recipes.recipe import Printed, main
from recipes.ser_encoder import recipe

MOCO = "MoCo-v3"  # which 3 epochs do not settle
BASES = ("VISReg", "Barlow Twins", "SMI", MOCO)
ARMS: dict[str, dict[str, Any]] = {
    f"{base}, {name}": {"base": base, "wrapper": "ser", "weight": weight, **({"epochs": 6} if base == MOCO else {})}
    for base in BASES
    for name, weight in (("lambda = 0", "0"), ("SER", "share:0.2"))
}
REFERENCE = {f"{base}, SER": f"{base}, lambda = 0" for base in BASES}

PRINTED = (
    Printed("SER above lambda = 0 on MoCo-v3, linear probe", "table 5", "MoCo-v3, SER", "MoCo-v3, lambda = 0", 0.46),
    *(
        Printed(f"SER follows turns better on {base}", "table 4", arm, REFERENCE[arm], measure="rot 2", gated=False)
        for base, arm in zip(BASES, REFERENCE, strict=True)
    ),
)
RECIPE = recipe("ser_bases", ARMS, REFERENCE, PRINTED, baseline="MoCo-v3, lambda = 0")

if __name__ == "__main__":
    sys.exit(main(RECIPE))
