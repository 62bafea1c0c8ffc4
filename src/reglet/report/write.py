"""From directories of runs to a file."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from reglet.engine.run_folder import write_text
from reglet.evaluate.source import Encoder, is_of_reglet, keys_for
from reglet.evaluate.source import open_source as open_encoder
from reglet.report.across import Compared, read_compare
from reglet.report.gather import Source, gather
from reglet.report.gather.source import source_of
from reglet.report.page.assemble import page
from reglet.report.task import read_task, task_page

MANY = 4  # runs, above which WebGL would run out of contexts, and SVG is drawn instead
FEW_POINTS = 1500


def write_report(
    runs: Sequence[str | Path],
    out: Path | None = None,
    *,
    data: str | Sequence[str] = "",
    points: int = 1000,
    robust_images: int = 200,
    sources: Mapping[Path, Source] | None = None,
    pretrained: bool = True,
    size: int = 0,
    says: Callable[[str], None] = lambda _: None,
    introduces: Callable[[str], None] = lambda _: None,
) -> Path:
    """One self-contained page about the runs in these directories; gives its place.

    A directory that `reglet compare` left stands for its two arms; one of a task gives the page of the task.
    out: report.html in the run's directory unless given, or of several runs, in the directory above the first.
    runs: an encoder that is not of reglet, or a file of features, may stand among them; see `reglet.evaluate.source`,
        whose `pretrained` and `size` these are.
    data: instead of the runs' own; of several sets each run has a part of the page for each.
    points: images on the map, at most.  robust_images: images to corrupt; 0: none.
    sources: of runs that were made in Python, what they can be looked at with.
    `says` hears what is being done, `introduces` how images are prepared for an encoder that is not of reglet.
    """
    if not runs:
        raise ValueError("a report is about one run or more; got none")
    first, sets = Path(runs[0]), [data] if isinstance(data, str) else list(data)
    if len(runs) == 1 and (task := read_task(first)) is not None:
        out = out or first / "report.html"
        write_text(out, task_page(first, task))
        return out
    compared = read_compare(first) if len(runs) == 1 else None
    given = [str(run) for run in (compared.runs if compared else runs)]
    if len(set(given)) != len(given):
        raise ValueError(f"each run once, got {', '.join(given)}")
    keys = keys_for(given, pretrained=pretrained, size=size)
    foreign = {
        spec: open_encoder(spec, **each)
        for spec, each in zip(given, keys, strict=True)
        if not is_of_reglet(Path(spec)) and Path(spec).resolve() not in {p.resolve() for p in sources or {}}
    }
    for encoder in foreign.values():
        introduces(encoder.introduction())
    folders = [Path(spec) for spec in given]
    points = min(points, FEW_POINTS) if len(folders) > MANY else points
    made = {path.resolve(): source for path, source in (sources or {}).items()}
    labels = names([folder for folder in folders if str(folder) not in foreign], compared)
    called = {spec: _called(foreign[spec]) if spec in foreign else labels.pop(0) for spec in given}
    found = [
        gather(
            Path(spec),
            name=called[spec] if len(sets) == 1 else f"{called[spec]} on {each}",
            data=each,
            points=points,
            robust_images=robust_images,
            says=says,
            source=source_of(foreign[spec], each) if spec in foreign else made.get(Path(spec).resolve()),
        )
        for spec in given
        for each in sets
    ]
    if out is None:
        place = Path() if given[0] in foreign else first if len(runs) == 1 else first.resolve().parent
        out = place / "report.html"
    write_text(out, page(found, compared))
    return out


def _called(encoder: Encoder) -> str:
    return f"{encoder.name} (random weights)" if encoder.random else encoder.name


def names(folders: Sequence[Path], compared: Compared | None = None) -> list[str]:
    """The shortest ends of the paths that tell them apart.

    >>> names([Path("runs/a"), Path("runs/b")]), names([Path("x/a"), Path("y/a")])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    if compared is not None:
        return ["base", "candidate"]
    parts = [folder.resolve().parts for folder in folders]
    ends: list[str] = []
    for k in range(1, max(map(len, parts), default=0) + 1):
        ends = ["/".join(p[-k:]) for p in parts]
        if len(set(ends)) == len(ends):
            break
    return ends
