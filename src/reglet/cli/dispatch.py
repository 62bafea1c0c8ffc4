"""From the first word to its command."""

import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from reglet.cli.compare import compare
from reglet.cli.doctor import doctor
from reglet.cli.embed import embed
from reglet.cli.eval import evaluate
from reglet.cli.export import export
from reglet.cli.list import names
from reglet.cli.report import report
from reglet.cli.robust import robust
from reglet.cli.run import pretrain, train
from reglet.cli.words import NOT_FINITE, OK, WRONG, fail
from reglet.engine.checkpoint import CheckpointError
from reglet.engine.guard import NonFiniteError
from reglet.engine.run_folder import RunError
from reglet.export import ExportError

EXPECTED = (ValueError, ImportError, OSError, RunError, CheckpointError, ExportError)
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "pretrain": pretrain,
    "train": train,
    "eval": evaluate,
    "robust": robust,
    "doctor": doctor,
    "compare": compare,
    "embed": embed,
    "export": export,
    "report": report,
    "list": names,
}
USAGE = """\
reglet: from a folder of images to an encoder

  reglet pretrain data=photos/ model=vit_tiny method=visreg out=runs/a
  reglet train    data=photos/ model=resnet18 out=runs/b       with labels: photos/CLASS/*.jpg
  reglet eval     runs/a                                       how good its features are: probes, rank, spread
  reglet robust   runs/a                                       under 15 corruptions and 14 perturbations
  reglet doctor   runs/a                                       is it collapsing? a verdict and an exit code
  reglet compare  base=method=vicreg candidate=method=visreg   does it help, by how much, at what cost
  reglet embed    run=runs/a data=photos/ out=features.npz     features of every image
  reglet export   run=runs/a out=encoder/                      weights and card, as pretrain leaves them in runs/a
  reglet report   runs/a runs/b                                one HTML page to look at, alone or side by side
  reglet list     [data | models | methods | losses | views]   every name there is

  reglet COMMAND --help explains a command and every key that it takes.
"""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for a mistake in what was asked, 3 for a loss that was not finite."""
    given = list(sys.argv[1:] if words is None else words)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    if not given or given[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return OK if given else WRONG
    if given[0] not in COMMANDS:
        close = get_close_matches(given[0], COMMANDS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return fail(f"there is no command {given[0]!r}.{hint} There are {', '.join(COMMANDS)}")
    try:
        return COMMANDS[given[0]](given[1:])
    except NonFiniteError as error:
        return fail(str(error), code=NOT_FINITE)
    except Exception as error:
        if debug or not is_mistake(error):
            raise
        return fail(f"{error}\n(--debug shows where this came from)" if not isinstance(error, RunError) else str(error))


def is_mistake(error: Exception) -> bool:
    """Whether the error is about what was asked.  A TypeError or KeyError from the depths is our own fault: its
    traceback is shown."""
    return isinstance(error, EXPECTED) or type(error) is LookupError
