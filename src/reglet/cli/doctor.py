"""`reglet doctor`"""

from reglet.cli.words import COMPUTE, COMPUTE_HELP, OK, asks_help, computing, directory, whole

HELP = (
    """\
reglet doctor DIRECTORY [data=...] [images=1000] [seed=0]

  reglet doctor runs/a                        a run: encoder, projector, loss and batch norm
  reglet doctor encoder/ data=photos/         an exported encoder: its features

What is wrong with a representation, if anything: complete or dimensional collapse, a dead or informationless
projector, batch-norm leakage, a regularizer that does nothing or everything, ranks with the same slices.
doctor.json in the directory has every number.

  data     as for pretrain; default: the run's own, its test images where it has any
  images   how many to look at, at most
"""
    + COMPUTE_HELP
    + """
A verdict is about the run.  What is only worth knowing, as a batch smaller than the embedding, is called a remark.

Exit code: 0 healthy, 1 sick, 4 too few images or steps to judge; 2 for a mistake in what was asked.
"""
)

NUMBERS = {
    "n": "images looked at",
    "d": "numbers for each image",
    "spread": "spread, relative to their size",
    "rank": "effective rank",
    "noise_rank": "effective rank of pure noise",
    "directions": "directions with 99.9 % of the variance",
    "rankme": "RankMe",
    "auc": "two views of an image are closer than of two",
    "dead": "share of constant dimensions",
    "share": "share of the gradient",
    "batch_share": "share of an embedding that batch mates decide",
    "mode_gap": "distance of training from evaluation mode",
    "batch": "samples that the loss sees together",
    "classes": "classes",
}


def doctor(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    run, given = directory("doctor", words, ("run", "data", "images", "seed", *COMPUTE))
    from reglet.evaluate.examine import REPORT, examine

    verdict = examine(
        run,
        data=given.get("data", ""),
        images=whole("images", given, 1000),
        seed=whole("seed", given, 0),
        **computing(given),
    )
    print(f"{run}: {verdict.name}\n")
    for finding in (*verdict.findings, *verdict.remarks):
        remark = "remark: " if finding.level == "remark" else ""
        _show(remark + finding.name, finding.evidence, finding.cause, finding.next_step)
    print("\n".join(f"  {_words(name):<58} {value:>8.4g}" for name, value in verdict.numbers.items()))
    print(f"\n{run / REPORT} has them by their short names; exit code {verdict.exit_code}")
    return verdict.exit_code


def _words(name: str) -> str:
    """A number's name as a person would say it.

    >>> _words("features.rank"), _words("batch")
    ('features: effective rank', 'samples that the loss sees together')
    """
    what, _, key = name.rpartition(".")
    return f"{what}: {NUMBERS[key]}" if what else NUMBERS[key]


def _show(name: str, evidence: str, cause: str, next_step: str) -> None:
    from textwrap import fill

    print(f"  {name}")
    for label, text in (("evidence", evidence), ("cause", cause), ("next", next_step)):
        print(fill(text, 80, initial_indent=f"    {label:<9} ", subsequent_indent=" " * 14))
    print()
