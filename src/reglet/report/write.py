"""From directories of runs to a file."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from reglet.report.across import Compared, read_compare
from reglet.report.gather import Source, gather
from reglet.report.page.assemble import page
from reglet.report.task import read_task, task_page

MANY = 4  # runs, above which WebGL would run out of contexts, and SVG is drawn instead
FEW_POINTS = 1500


def write_report(
    runs: Sequence[Path],
    out: Path | None = None,
    *,
    data: str = "",
    points: int = 1000,
    robust_images: int = 200,
    sources: Mapping[Path, Source] | None = None,
    says: Callable[[str], None] = lambda _: None,
) -> Path:
    """One self-contained page about the runs in these directories; gives its place.

    A directory that `reglet compare` left stands for its two arms; one of a task gives the page of the task.
    out: report.html in the run's directory unless given, or of several runs, in the directory above the first.
    data: instead of the runs' own.  points: images on the map, at most.  robust_images: images to corrupt; 0: none.
    sources: of runs that were made in Python, what they can be looked at with.
    """
    if not runs:
        raise ValueError("a report is about one run or more; got none")
    if len(runs) == 1 and (task := read_task(runs[0])) is not None:
        out = out or runs[0] / "report.html"
        write_text(out, task_page(runs[0], task))
        return out
    compared = read_compare(runs[0]) if len(runs) == 1 else None
    folders = [Path(run) for run in (compared.runs if compared else runs)]
    if len(set(folders)) != len(folders):
        raise ValueError(f"each run once, got {', '.join(map(str, folders))}")
    points = min(points, FEW_POINTS) if len(folders) > MANY else points
    given = {path.resolve(): source for path, source in (sources or {}).items()}
    found = [
        gather(
            folder, name=name, data=data, points=points, robust_images=robust_images, says=says,
            source=given.get(folder.resolve()),
        )
        for folder, name in zip(folders, names(folders, compared), strict=True)
    ]  # fmt: skip
    if out is None:
        out = (runs[0] if len(runs) == 1 else Path(runs[0]).resolve().parent) / "report.html"
    write_text(out, page(found, compared))
    return out


def names(folders: Sequence[Path], compared: Compared | None = None) -> list[str]:
    """The shortest ends of the paths that tell them apart.

    >>> names([Path("runs/a"), Path("runs/b")]), names([Path("x/a"), Path("y/a")])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    if compared is not None:
        return ["base", "candidate"]
    parts = [folder.resolve().parts for folder in folders]
    for k in range(1, max(map(len, parts)) + 1):
        ends = ["/".join(p[-k:]) for p in parts]
        if len(set(ends)) == len(ends):
            break
    return ends


def write_text(path: Path, text: str) -> None:
    """Atomically, as checkpoints are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
