"""Which layer SER stands at, and which transforms it draws.

Paper     the paper on soft equivariance regularization (SER), tables 4 and 9
Command   python -m recipes.ser_ablation
Printed   MoCo-v3, ViT-S/16, ImageNet-1k, linear probe and scores for turns, flips, scale: none 68.44 .804 .870 .945;
          layer 3 69.28 .840 .881 .945; layer 9 68.72 .888 .886 .957; layer 12 68.18 .924 .892 .957.  Without turns
          69.17, without turns and flips 69.12, without turns and scale 68.67
Design    recipes/ser_encoder.py with VISReg: a conv net 32-64-128, 3,000 CIFAR-10 images, 3 epochs of 128, stages in
          the place of layers; SER with a fifth of the gradient; seeds 1 to 29 (32 were planned).
          Figures and minutes: recipes/summaries/ser_ablation.json.
Found     SER is felt most at the stage where it stands: at stage 2 the maps of stage 2 follow turns by 0.10 more than
          with lambda = 0, and those of stage 3 by 0.04; at stage 3 its own maps by 0.07.  By the maps of stage 3 the
          paper's order holds: the later SER stands, the better turns are followed.  The last stage costs no accuracy
          (+0.1 +- 0.8, printed -1.1).  Without turns among the transforms turns are followed by 0.11 to 0.15 less, and
          accuracy does not fall.
Before    A ViT of six blocks (2026-11-16, three seeds), below raw pixels, followed turns by .09, .18, .24 and .30 more
          with SER at layers 1, 2, 3 and 6; without turns or scale among the transforms it followed these less.
"""

import sys
from functools import partial
from typing import Any

from recipes.recipe import Printed, main
from recipes.ser_encoder import recipe

SER = {"wrapper": "ser"}
ARMS: dict[str, dict[str, Any]] = {
    "lambda = 0": SER | {"weight": "0"},
    "stage 1": SER | {"layer": 1},
    "stage 2": SER,
    "stage 3": SER | {"layer": 3},
    "without turns": SER | {"turns": False},
    "without flips": SER | {"flips": False},
    "without scale": SER | {"scales": False},
}
OTHERS = {"without turns": 5, "without flips": 2, "without scale": 2}  # what is printed of these, two cores cannot see
REFERENCE = {arm: "stage 2" if arm.startswith("without") else "lambda = 0" for arm in ARMS if arm != "lambda = 0"}

_turns = partial(Printed, where="table 4", measure="rot 3", gated=False)
PRINTED = (
    _turns("turns are followed better with SER at stage 3 than at 2", arm="stage 3", versus="stage 2"),
    _turns("turns are followed better with SER at stage 2 than at 1", arm="stage 2", versus="stage 1"),
    _turns("turns are followed better with SER at stage 1 than without", arm="stage 1", versus="lambda = 0"),
    Printed("the last stage costs accuracy", "table 4: layer 12", "stage 3", "stage 2", -1.1),
    Printed("without turns accuracy falls", "table 9", "without turns", "stage 2", -0.11),
)
RECIPE = recipe("ser_ablation", ARMS, REFERENCE, PRINTED, baseline="lambda = 0", base="VISReg", fewer=OTHERS, seeds=32)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
