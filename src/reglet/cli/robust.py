"""`reglet robust`"""

from reglet.cli.words import COMPUTE, COMPUTE_HELP, OK, asks_help, computing, directory, whole

HELP = (
    """\
reglet robust DIRECTORY [data=...] [severities=1,2,3,4,5] [perturbations=false] [images=1000] [batch=256] [seed=0]

  reglet robust runs/a                          a run, on its own data
  reglet robust encoder/ data=photos/           an exported encoder, on data with labels

Accuracy of a linear probe, fitted to clean features, under the 15 corruptions of ImageNet-C, made anew at the size of
the images; with perturbations=true also along the 14 sequences of ImageNet-P, with how often the prediction flips.
robust.json in the directory has every number.

"""
    + COMPUTE_HELP
)
KEYS = ("run", "data", "severities", "perturbations", "images", "batch", "seed", *COMPUTE)


def robust(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    run, given = directory("robust", words, KEYS)
    chosen = given.get("severities", "1,2,3,4,5").split(",")
    if not all(word in tuple("12345") for word in chosen):
        raise ValueError(f"severities are numbers from 1 to 5 with commas between them, got {given['severities']!r}")
    if (asked := given.get("perturbations", "false").lower()) not in ("true", "false"):
        raise ValueError(f"perturbations is true or false, got {asked!r}")
    from reglet.cli.robust_table import show
    from reglet.evaluate.robust import REPORT, robust_run

    found = robust_run(
        run,
        data=given.get("data", ""),
        severities=tuple(map(int, chosen)),
        perturbations=asked == "true",
        images=whole("images", given, 1000, least=2),
        batch=whole("batch", given, 256, least=1),
        seed=whole("seed", given, 0),
        **computing(given),
    )
    show(found)
    print(f"\n{run / REPORT} has every number.")
    return OK
