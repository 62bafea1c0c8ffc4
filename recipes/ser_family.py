"""AugSelf and EquiMod on the features of the last stage, and decoupled to the maps of the second.

Paper     the paper on soft equivariance regularization (SER), table 6
Command   python -m recipes.ser_family
Printed   MoCo-v3, ViT-S/16, ImageNet-1k, linear probe, final -> stage 2: EquiMod 68.95 -> 69.51, AugSelf 67.55 -> 68.23
Design    Network, data and length of recipes/ser.py: Barlow Twins, a conv net 32-64-128, 3,000 CIFAR-10 images, 3
          epochs of 128, stages in the place of layers; seeds 1 to 12.
Measured  2026-11-19, seeds 1 to 12.  Figures, commits and minutes: recipes/summaries/ser_family.json.
Found     The base has 39.4, and twice the steps move it by less than a point.  That AugSelf gains 0.68 at stage 2 is
          excluded (0.0 +- 0.5); EquiMod has +0.1 +- 0.9, and 60 seeds would tell.  Neither is above the base by
          anything that can be told.
Before    A ViT of six blocks had +1.3 +- 2.9 (EquiMod) and +0.3 +- 2.2 (AugSelf) at layer 3 against the end, three
          seeds (2026-11-16, commit 30633ee); it stayed below raw pixels.
"""

import sys
from typing import Any

from recipes.recipe import Printed, main
from recipes.ser_encoder import recipe

ARMS: dict[str, dict[str, Any]] = {
    "base": {},
    "AugSelf, final": {"wrapper": "augself", "layer": 0},
    "AugSelf, stage 2": {"wrapper": "augself"},
    "EquiMod, final": {"wrapper": "equimod", "layer": 0},
    "EquiMod, stage 2": {"wrapper": "equimod"},
}
REFERENCE = {arm: "base" if "stage" not in arm else arm.replace("stage 2", "final") for arm in ARMS if arm != "base"}

PRINTED = (
    Printed("AugSelf is better at stage 2 than at the end", "table 6", "AugSelf, stage 2", "AugSelf, final", 0.68),
    Printed("EquiMod is better at stage 2 than at the end", "table 6", "EquiMod, stage 2", "EquiMod, final", 0.56),
)
RECIPE = recipe(
    "ser_family",
    ARMS,
    REFERENCE,
    PRINTED,
    baseline="base",
    seeds=12,
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
