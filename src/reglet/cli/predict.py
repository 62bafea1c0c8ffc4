"""`reglet predict`"""

from pathlib import Path
from typing import TYPE_CHECKING

from reglet.cli.loading import load
from reglet.cli.words import COMPUTE, COMPUTE_HELP, OK, asks_help, computing, pairs, whole

if TYPE_CHECKING:
    from reglet.evaluate.predict import Predictions

HELP = (
    """\
reglet predict DIRECTORY [DATA] [out=predictions.csv] ...

  reglet predict runs/b images/ out=predictions.csv    the class of every image in a folder, and all probabilities
  reglet predict runs/b photo.jpg                      of one image, on the screen
  reglet predict runs/b out=held-out.csv               of the images that the run has held out

The classifier comes from reglet train or reglet export.  Images are prepared as in training.  A file that cannot be
read is named and left out.  If the images have labels, the accuracy is that on images that were not trained on.

  run      directory of a run of reglet train, or of an exported classifier
  data     a folder, an image, a .npz, hf/NAME, ...: as for train; default: what the run has held out
  split    part of the data, such as test; default: all
  out      FILE.csv, FILE.parquet or FILE.npz: file_name, label where known, class, probability, and p(CLASS) of every
           class; default: the first lines, on the screen
  batch    images at a time (256)
"""
    + COMPUTE_HELP
)
KEYS = ("run", "data", "split", "out", "batch", *COMPUTE)
SHOWN = 20


def predict(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    places = [word for word in words if "=" not in word]
    given = pairs([word for word in words if "=" in word], KEYS)
    names = [key for key in ("run", "data") if key not in given]
    if len(places) > len(names) or ("run" not in given and not places):
        raise ValueError("reglet predict needs the directory of a run, and data, such as runs/b images/")
    given |= dict(zip(names, places, strict=False))
    batch = whole("batch", given, 256, least=1)
    out = Path(given["out"]) if "out" in given else None
    load("reglet.evaluate")
    from reglet.cli.screen import screen
    from reglet.evaluate.columns import require_suffix
    from reglet.evaluate.predict import predict as classify

    if out is not None:
        require_suffix(out)
    apart = screen(stderr=True)
    found = classify(
        Path(given["run"]),
        given.get("data", ""),
        split=given.get("split", ""),
        batch=batch,
        says=apart.print,
        **computing(given),
    )
    if out is None:
        _show(found)
    else:
        found.write(out)
        print(f"{out}: {len(found.probabilities):,} images, {len(found.classes)} classes")
    print(_accuracy(found), end="")
    return OK


def _show(found: "Predictions") -> None:
    """The likeliest three classes of the first images."""
    from rich.table import Table

    from reglet.cli.screen import screen

    table = Table(box=None, pad_edge=False)
    table.add_column("file" if found.files else "image", overflow="fold")
    for title in ("class", "probability", "then"):
        table.add_column(title, justify="right" if title == "probability" else "left", overflow="fold")
    top, which = found.probabilities[:SHOWN].topk(min(3, len(found.classes)), dim=1)
    for i, (shares, places) in enumerate(zip(top.tolist(), which.tolist(), strict=True)):
        first, *others = [(found.classes[k], f"{100 * p:.1f} %") for p, k in zip(shares, places, strict=True)]
        then = ", ".join(" ".join(pair) for pair in others)
        table.add_row(found.files[i] if found.files else str(i), *first, then)
    screen().print(table)
    if (more := len(found.probabilities) - SHOWN) > 0:
        print(f"and {more:,} more; out=predictions.csv has them all, with every probability")


def _accuracy(found: "Predictions") -> str:
    if found.labels is None:
        return ""
    if found.seen is None:
        return "No accuracy: whether these images were trained on is not known here.\n"
    seen = int(found.seen.sum())
    but = f"; {seen:,} others were, and do not count" if seen else ""
    if found.accuracy is None:
        return f"No accuracy: the run was trained on all of these {seen:,} images.\n"
    share, n = found.accuracy
    return f"The classifier is right on {100 * share:.1f} % of the {n:,} images that it was not trained on{but}.\n"
