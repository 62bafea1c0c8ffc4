"""`reglet doctor`"""

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
)

if TYPE_CHECKING:
    from reglet.diagnostics.verdict import Verdict

HELP = (
    """\
reglet doctor ENCODER [ENCODER ...] [data=...] [images=1000] [seed=0]

  reglet doctor runs/a                        a run: encoder, projector, loss and batch norm
  reglet doctor encoder/ data=photos/         an exported encoder: its features
  reglet doctor features.npz                  features of whatever made them
  reglet doctor runs/a timm/resnet18 data=photos/,birds/    a line for each encoder and set

Says what is wrong with a representation: complete or dimensional collapse, a dead or informationless projector,
batch-norm leakage, a regularizer that does nothing or everything, ranks with the same slices.
doctor.json in the directory of a run or an exported encoder has every number.

"""
    + ENCODERS_HELP.format(features="")
    + """
  data     as for pretrain, several with commas between them; default: the run's own, its test images where it has any
  images   how many to look at, at most
"""
    + COMPUTE_HELP
    + """
A verdict is about the run.  What is only worth knowing, as a batch smaller than the embedding, is called a remark.

Exit code: 0 healthy, 1 sick, 4 too few images or steps to judge; 2 for a mistake in what was asked.  Of several, 1 if
one is sick, else 4 if one cannot be judged.
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
    given_as, given = encoders("doctor", words, ("run", "data", "images", "seed", *GIVEN, *COMPUTE))
    sets = several(given.get("data", ""))
    how = {"images": whole("images", given, 1000), "seed": whole("seed", given, 0), "says": print, **computing(given)}
    load("reglet.evaluate")
    from reglet.evaluate.examine import examine
    from reglet.evaluate.source import keys_for

    found = {
        (run, data): examine(run, data=data, **how, **keys)
        for run, keys in zip(given_as, keys_for(given_as, **sourcing(given)), strict=True)
        for data in sets or [""]
    }
    if len(found) > 1:
        return _table(found)
    (((run, _), verdict),) = found.items()
    print(f"{run}: {verdict.name}\n")
    for finding in (*verdict.findings, *verdict.remarks):
        remark = "remark: " if finding.level == "remark" else ""
        _show(remark + finding.name, finding.evidence, finding.cause, finding.next_step)
    print("\n".join(f"  {_words(name):<58} {value:>8.4g}" for name, value in verdict.numbers.items()))
    kept = _kept(run)
    where = "" if kept is None else f"{kept} has them by their short names; "
    print(f"\n{where}exit code {verdict.exit_code}")
    return verdict.exit_code


def _table(found: "dict[tuple[str, str], Verdict]") -> int:
    from rich.table import Table

    from reglet.cli.screen import screen

    table = Table(box=None, pad_edge=False)
    for title in ("encoder", "data", "verdict"):
        table.add_column(title, overflow="fold")
    for title in ("effective rank", "RankMe", "features"):
        table.add_column(title, justify="right")
    for (run, data), verdict in found.items():
        numbers = [verdict.numbers.get(f"features.{key}") for key in ("rank", "rankme", "d")]
        cells = ["" if value is None else f"{value:.4g}" for value in numbers]
        table.add_row(run, data or "its own", verdict.name, *cells)
    screen().print(table)
    codes = {verdict.exit_code for verdict in found.values()}
    code = next(code for code in (1, 4, 0) if code in codes)
    print(f"\nreglet doctor ENCODER, of one alone, says why; exit code {code}")
    return code


def _kept(run: str) -> Path | None:
    """doctor.json of a run or an exported encoder."""
    from reglet.evaluate.examine import REPORT

    file = Path(run) / REPORT
    return file if file.is_file() else None


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
