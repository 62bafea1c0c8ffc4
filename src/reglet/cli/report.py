"""`reglet report`"""

from pathlib import Path

from reglet.cli.loading import load
from reglet.cli.words import ENCODERS_HELP, GIVEN, OK, asks_help, pairs, several, sourcing, whole

HELP = (
    """\
reglet report ENCODER [ENCODER ...] [out=report.html] [data=...] ...

  reglet report runs/a                      a page about one run, in runs/a/report.html
  reglet report runs/a runs/b               two runs side by side, in runs/report.html
  reglet report runs/compare                what reglet compare left
  reglet report runs/audio                  what reglet train task=audio left: scores, curves, how to repeat it
  reglet report runs/a timm/resnet18 data=photos/     beside released weights
  reglet report features.npz                what features alone can show

One HTML file with everything in it: no network, no server.  Verdict, probes, cost, training curves, a map of the
images, the geometry of the features, feature maps, equivariance, robustness, and how to repeat it.  The page says what
a run cannot show (no labels, cut off, no weights yet).

"""
    + ENCODERS_HELP.format(features=" (without the parts that need a network)")
    + """
  out      file to write
  data     as for pretrain, several with commas between them; default: the runs' own
  points   images on the map, at most (1000); a t-SNE of many takes long
  robust   test images to corrupt (200); 0: none
"""
)
KEYS = ("out", "data", "points", "robust", *GIVEN)


def report(words: list[str]) -> int:
    if asks_help(words):
        print(HELP, end="")
        return OK
    places = [word for word in words if "=" not in word]
    given = pairs([word for word in words if "=" in word], KEYS)
    if not places:
        raise ValueError("reglet report needs one directory or more, such as runs/a; see reglet report --help")
    points, robust = whole("points", given, 1000, least=4), whole("robust", given, 200)
    load("reglet.report")
    from reglet import progress
    from reglet.report import write_report

    introductions: list[str] = []
    with progress.work("report") as work:
        out = write_report(
            places,
            Path(given["out"]) if "out" in given else None,
            data=several(given.get("data", "")) or "",
            **sourcing(given),
            points=points,
            robust_images=robust,
            says=work.note,
            introduces=introductions.append,
        )
    for line in introductions:
        print(line)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB. Open {out.resolve().as_uri()}")
    return OK
