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
Exit code: 0 healthy, 1 sick, 4 too few images to tell; 2 for a mistake in what was asked.
"""
)


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
    for finding in verdict.findings:
        _show(finding.name, finding.evidence, finding.cause, finding.next_step)
    print("\n".join(f"  {name:<24} {value:.4g}" for name, value in verdict.numbers.items()))
    print(f"\n{run / REPORT} has them all; exit code {verdict.exit_code}")
    return verdict.exit_code


def _show(name: str, evidence: str, cause: str, next_step: str) -> None:
    from textwrap import fill

    print(f"  {name}")
    for label, text in (("evidence", evidence), ("cause", cause), ("next", next_step)):
        print(fill(text, 80, initial_indent=f"    {label:<9} ", subsequent_indent=" " * 14))
    print()
