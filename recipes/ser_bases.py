"""SER on VISReg and on SMI, which no paper has tried, and on MoCo-v3.

Paper     the paper on soft equivariance regularization (SER), table 1, has MoCo-v3, DINO and Barlow Twins
Command   python -m recipes.ser_bases
Printed   MoCo-v3 68.44 -> 69.28, DINO 67.37 -> 67.63, Barlow Twins 63.34 -> 64.02; nothing on VISReg and SMI
Machine   two cores, no GPU; 26 CPU minutes
Measured  2026-11-16, commit 30633ee, torch 2.13.0, at the default size: 3 epochs of 10,000 CIFAR-10 images, 234 steps,
          three seeds (0 to 2).  SER minus lambda = 0, paired by seed, with the 95 % interval (Student's t); before the
          sign what lambda = 0 has.  Accuracy in %, centred scores after the third block.

          base     linear               20-NN                turns             flips             scale
          VISReg   34.80 -0.02 +- 2.21  30.90 -2.28 +- 1.19  .437 +.200+-.042  .639 +.126+-.036  .693 +.081+-.044
          SMI      36.40 +0.05 +- 2.04  32.17 +0.72 +- 0.31  .423 +.128+-.058  .633 +.084+-.090  .673 +.069+-.014
          MoCo-v3  33.60 +1.32 +- 3.28  27.73 +0.63 +- 1.74  .425 +.141+-.070  .656 +.078+-.028  .720 +.038+-.034

          After the last block it is much the same: turns +.182 +- .047, +.120 +- .071, +.136 +- .062.

Found     SER does what it says: on all three bases the maps follow turns, flips and scale better, eight of nine scores
          by more than their interval, and they do so still three blocks after the one that it stands on.  On Barlow
          Twins (recipes/ser.py) the same lambda = 0.5 moved nothing that could be told; its loss is a sum over 128
          features, so lambda may be too small beside it (not tested).
          By a linear probe SER costs nothing and gains nothing that three seeds can tell.  By 20-NN it costs VISReg two
          points and gives SMI most of one.  A probe reads turns no better from SER's features (-1.3 to -0.7 points, all
          intervals around zero): to follow a turn is not to tell it.

Since     All of the above is of a ViT of six blocks, which stayed below raw pixels.  Now the conv net of
          recipes/ser_encoder.py, stages in the place of layers, SER with a fifth of the gradient, seeds 1 to 5 through
          the runner, and gates.  One run takes 12 CPU seconds; at seed 0, 3,000 images and 4 epochs, SER's maps follow
          turns by 0.15 (VISReg) and 0.11 (Barlow Twins) more than lambda = 0.  Not run since.
"""

import sys
from typing import Any

from recipes.recipe import Printed, main
from recipes.ser_encoder import recipe

BASES = ("VISReg", "Barlow Twins", "SMI", "MoCo-v3")
ARMS: dict[str, dict[str, Any]] = {
    f"{base}, {name}": {"base": base, "wrapper": "ser", "weight": weight}
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
