"""From the first word to its command.  torch is loaded by the commands that need it, not before."""

import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module

from reglet import progress
from reglet.cli.words import INTERRUPTED, NOT_FINITE, OK, WRONG, asks_help, fail, plain
from reglet.freed_memory import keep_freed_memory

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# command: where its function is, as module.function
COMMANDS = {
    "pretrain": "run.pretrain",
    "adapt": "adapt.adapt",
    "train": "run.train",
    "eval": "eval.evaluate",
    "robust": "robust.robust",
    "doctor": "doctor.doctor",
    "compare": "compare.compare",
    "predict": "predict.predict",
    "embed": "embed.embed",
    "export": "export.export",
    "report": "report.report",
    "list": "list.names",
}
USAGE = """\
reglet: from a folder of images to an encoder

  reglet pretrain data=photos/ model=vit_tiny method=visreg out=runs/a
  reglet adapt    data=photos/ model=timm/NAME pretrained=true   continue from given weights; better or worse?
  reglet train    data=photos/ model=resnet18 out=runs/b       with labels: photos/CLASS/*.jpg
  reglet eval     runs/a                                       how good its features are: probes, rank, spread
  reglet robust   runs/a                                       under 15 corruptions and 14 perturbations
  reglet doctor   runs/a                                       is it collapsing? a verdict and an exit code
  reglet compare  base=method=vicreg candidate=method=visreg   does it help, by how much, at what cost
  reglet predict  runs/b images/ out=predictions.csv           the class of every image, by a classifier of train
  reglet embed    run=runs/a data=photos/ out=features.npz     features of every image
  reglet export   run=runs/a out=encoder/                      weights and card, as pretrain leaves them in runs/a
  reglet report   runs/a runs/b                                one HTML page to look at, alone or side by side
  reglet list     [data | models | methods | losses | views]   every name there is

  reglet COMMAND --help explains a command and every key that it takes.
"""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for a mistake in what was asked, 3 for a loss that was not finite, 130 for Ctrl-C;
    doctor and adapt have codes of their own."""
    given = list(sys.argv[1:] if words is None else words)
    debug = "--debug" in given
    given = plain([word for word in given if word != "--debug"])
    if "torch" not in sys.modules:  # a process of our own, and not someone's program that calls this function
        choose_waiting()
        keep_freed_memory()
    if not given or given[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return OK if given else WRONG
    if given[0] in ("-V", "--version", "version"):
        import reglet

        print(f"reglet {reglet.__version__}")
        return OK
    if given[0] not in COMMANDS:
        close = get_close_matches(given[0], COMMANDS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return fail(f"there is no command {given[0]!r}.{hint} There are {', '.join(COMMANDS)}")
    try:
        with progress.shown():
            with progress.work(f"starting {given[0]}"):
                act = command(given[0])
                if not asks_help(given[1:]):
                    import_module("torch")
            return act(given[1:])
    except KeyboardInterrupt:
        return fail("stopped by Ctrl-C", code=INTERRUPTED)
    except Exception as error:
        if is_not_finite(error):
            return fail(str(error), code=NOT_FINITE)
        if debug or not is_mistake(error):
            raise
        return fail(f"{error}\n(--debug shows where this came from)")


def choose_waiting() -> None:
    """How torch's threads wait for work, unless the user has said it: they spin for some microseconds, then sleep.

    By themselves they spin for milliseconds, on cores that others may need; see benchmarks/shared_machine.py.  torch
    reads this when it is loaded.
    """
    if not any(key in os.environ for key in WAITING):
        os.environ["GOMP_SPINCOUNT"] = "2500"


def command(name: str) -> Callable[[list[str]], int]:
    module, function = COMMANDS[name].split(".")
    found: Callable[[list[str]], int] = getattr(import_module(f"reglet.cli.{module}"), function)
    return found


def is_not_finite(error: Exception) -> bool:
    from reglet.engine.guard import NonFiniteError

    return isinstance(error, NonFiniteError)


def is_mistake(error: Exception) -> bool:
    """Whether the error is about what was asked.  A TypeError or KeyError from the depths is our own fault: its
    traceback is shown."""
    from reglet.engine.checkpoint import CheckpointError
    from reglet.export import ExportError

    expected = (ValueError, ImportError, OSError, CheckpointError, ExportError)
    return isinstance(error, expected) or type(error) is LookupError
