"""`reglet robust`"""

from pathlib import Path
from typing import TYPE_CHECKING

from reglet.cli.loading import load
from reglet.cli.words import (
    COMPUTE,
    COMPUTE_HELP,
    ENCODERS_HELP,
    GIVEN,
    OK,
    asks_help,
    computing,
    encoders,
    several,
    sourcing,
    whole,
    yes,
)

if TYPE_CHECKING:
    from torch import Tensor

    from reglet.data import Images
    from reglet.evaluate.source import Encoder

HELP = (
    """\
reglet robust ENCODER [ENCODER ...] [data=...] [severities=1,2,3,4,5] [perturbations=false] [images=1000] ...

  reglet robust runs/a                                  a run, on its own data
  reglet robust encoder/ data=photos/                   an exported encoder, on data with labels
  reglet robust runs/a timm/resnet18 data=photos/       a table of several: paired by test image; wins; cost

Fits a linear probe to clean features, and tests it under the 15 corruptions of ImageNet-C, made at the size of the
images.  perturbations=true adds the 14 sequences of ImageNet-P, and how often the prediction flips.
robust.json in the directory of a run or an exported encoder has every number.

"""
    + ENCODERS_HELP.format(features=" (not here: corrupted images need a network)")
    + """
  data           as for pretrain, several with commas between them; default: the run's own
  severities     of 1 to 5, with commas between them
  perturbations  true: the sequences too; of one encoder on one set
  images         of the test part, at most (1000)
  batch          images at a time (256)
  seed           of the corruptions (0)
  out            file for the numbers
"""
    + COMPUTE_HELP
)
KEYS = ("run", "data", "severities", "perturbations", "images", "batch", "seed", "out", *GIVEN, *COMPUTE)


def robust(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    given_as, given = encoders("robust", words, KEYS)
    sets = several(given.get("data", ""))
    chosen = given.get("severities", "1,2,3,4,5").split(",")
    if not all(word in tuple("12345") for word in chosen):
        raise ValueError(f"severities are numbers from 1 to 5 with commas between them, got {given['severities']!r}")
    perturbations = yes("perturbations", given, default=False)
    images, batch = whole("images", given, 1000, least=2), whole("batch", given, 256, least=1)
    seed, severities = whole("seed", given, 0), tuple(map(int, chosen))
    out = Path(given["out"]) if "out" in given else None
    load("reglet.evaluate")
    from reglet.engine.run_folder import write_json
    from reglet.evaluate.compute import compute
    from reglet.evaluate.robust import REPORT, robust_encoder
    from reglet.evaluate.source import open_sources

    where = compute(**computing(given))
    opened = open_sources(given_as, **sourcing(given))
    for encoder in opened:
        encoder.require_network("robust")
    how = {"severities": severities, "images": images, "batch": batch, "compute": where, "seed": seed}
    if len(opened) == 1 and len(sets) < 2:
        from reglet.cli.eval_table import show_encoder
        from reglet.cli.robust_table import show

        (encoder,) = opened
        found = robust_encoder(encoder, *encoder.pair(sets[0] if sets else ""), perturbations=perturbations, **how)  # type: ignore[arg-type]
        show_encoder(encoder)
        show(found)
        numbers = found.json()
        out = encoder.folder / REPORT if out is None and encoder.folder is not None else out
    else:
        if perturbations:
            raise ValueError("perturbations=true is for one encoder on one set")
        from reglet import progress
        from reglet.cli.judge_table import show as show_table
        from reglet.evaluate.judge import judge

        def measure(encoder: "Encoder", train: "Images", test: "Images") -> "dict[str, Tensor]":
            seen = robust_encoder(encoder, train, test, **how)  # type: ignore[arg-type]
            return {"clean": seen.right, "corrupted": seen.by_image}

        with progress.work("robust") as work:
            judged = judge(opened, sets, measure, compute=where, seed=seed, says=work.note)
        show_table(judged)
        numbers = judged.json()
    if out is not None:
        write_json(out, numbers)
    print("\nout=FILE would keep every number." if out is None else f"\n{out} has every number.")
    return OK
