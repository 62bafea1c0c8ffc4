"""How many slices do VISReg, SWD and SIGReg need?  128 against 1,024, on a long-tailed training set.

Paper     Wu et al. 2026, number of slices
Command   python -m recipes.visreg_slices
Machine   two cores, no GPU
Printed   gains of a linear probe by 1,024 slices over 128 on one GPU: SIGReg 13.88, SWD 2.21, VISReg 2.44
Measured  not yet
"""

import sys

from recipes.recipe import Printed, main
from recipes.visreg_ablation import Changes, recipe

FEW, MANY = 128, 1024
PRINTED = {"VISReg": 2.44, "SWD": 2.21, "SIGReg": 13.88}
SLICES: dict[str, Changes] = {
    f"{loss}, {k} slices": {"loss": loss, "slices": k} for loss in PRINTED for k in (FEW, MANY)
}

RECIPE = recipe(
    "visreg_slices",
    SLICES,
    [
        Printed(
            f"{loss} gains by 1,024 slices over 128",
            "GPUs figure, one GPU",
            f"{loss}, {MANY} slices",
            f"{loss}, {FEW} slices",
            effect,
        )
        for loss, effect in PRINTED.items()
    ],
    base={f"{loss}, {MANY} slices": f"{loss}, {FEW} slices" for loss in PRINTED},
    baseline=f"VISReg, {MANY} slices",
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
