"""The walks of ARCHITECTURE.md, recorded: `python -m benchmarks.walks` writes them there.

A profiler notes every file of reglet when one of its functions is first called; what runs while a module is imported
does not count.  Chapters begin where a file is first called that begins them.  Within a chapter files stand by room.
"""

import datetime
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, SOURCE = ROOT / "ARCHITECTURE.md", ROOT / "src" / "reglet"
BEGIN, END = "<!-- walks, by python -m benchmarks.walks -->", "<!-- end of walks -->"
SHORT = ("steps=2", "accelerator=cpu")
# title, words, and the chapters: what happens, and the file with which it begins
Chapters = Sequence[tuple[str, str]]
WALKS: dict[str, tuple[list[str], Chapters]] = {
    "`reglet pretrain`, to the sort in VISReg and back to the checkpoint": (
        ["pretrain", "batch=64", "knn_every=1", *SHORT],
        [
            ("Words become settings", ""),
            ("Processes are launched; the run is built by names", "train.py"),
            (
                "The plan.  A trial step tells how long the run will take, so all of a step is here: views, forward, "
                "the sort (in `cpu_slices` on the CPU, in `wasserstein` elsewhere), backward",
                "engine/budget.py",
            ),
            ("The loop and what it keeps", "engine/guard.py"),
            ("What is watched, the checkpoint, the encoder", "probes/knn.py"),
        ],
    ),
    "`reglet train task=domains`": (
        ["train", "task=domains", "per_domain=8", "checkpoints=1", "seeds=2", *SHORT],
        [
            ("Words become settings", ""),
            ("The task; data are opened after launching", "tasks/run.py"),
            ("The runner asks for each fold and seed: a Method, a Feed and a score", "runs/execute.py"),
            ("The loop", "train.py"),
            ("A step", "engine/guard.py"),
            ("Checkpoint, choice, interval, table", "engine/checkpoint.py"),
        ],
    ),
    "`reglet train task=audio sim=auto paired=true`": (
        ["train", "task=audio", "sim=auto", "paired=true", "batch=16", *SHORT],
        [
            ("Words become settings", ""),
            ("The task and its clips", "tasks/run.py"),
            ("The runner; the arm without SIM comes first", "runs/execute.py"),
            ("The loop, its steps, the score", "train.py"),
            ("The arm with SIM: attached to blocks by name, then the same loop", "attach/select.py"),
            ("Intervals and the table", "runs/interval.py"),
        ],
    ),
    "`reglet report`": (
        ["report", "{run}"],
        [
            ("Words", ""),
            ("The run is opened: built by names as it was trained, its weights read", "report/write.py"),
            ("Features, once; training curves, and the verdict of `reglet doctor`", "evaluate/extract.py"),
            ("Probes and cost", "report/gather/probing.py"),
            ("Embedding, geometry, maps, equivariance, robustness", "report/gather/embedding.py"),
            ("The page", "report/page/assemble.py"),
        ],
    ),
}


def record(words: list[str]) -> list[str]:
    """The files in the order of their first call.  For a process of its own."""
    from reglet.cli import main

    found: dict[str, None] = {}
    importing = threading.local()

    def look(frame: Any, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code.co_name == "<module>":
            importing.depth = getattr(importing, "depth", 0) + (1 if event == "call" else -1)
        elif event == "call" and not getattr(importing, "depth", 0):
            path = Path(code.co_filename)
            if path.suffix == ".py" and path.is_relative_to(SOURCE):  # Jinja2's templates have functions, too
                found.setdefault(str(path.relative_to(SOURCE)))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        assert main(words) == 0
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(found)


def chapters(files: Sequence[str], wanted: Chapters) -> list[tuple[str, list[str]]]:
    """The files, cut where a chapter begins."""
    starts = {first: title for title, first in wanted}
    missing = [first for first in starts if first and first not in files]
    if missing:
        raise ValueError(f"no call of {', '.join(missing)}: a chapter begins there")
    found = [(starts[""], list[str]())]
    for file in files:
        if file in starts:
            found.append((starts[file], []))
        found[-1][1].append(file)
    return found


def by_room(files: Sequence[str]) -> str:
    """
    >>> by_room(["train.py", "data/load.py", "engine/feed.py", "data/digits.py"])
    '`train.py`, `data/{load,digits}.py`, `engine/feed.py`'
    """
    rooms: dict[str, list[str]] = {}
    for file in files:
        room, _, name = file.rpartition("/")
        rooms.setdefault(room or file, []).append(name.removesuffix(".py"))
    texts = []
    for room, names in rooms.items():
        leaf = names[0] if len(names) == 1 else "{" + ",".join(names) + "}"
        texts.append(f"`{room}`" if room.endswith(".py") else f"`{room}/{leaf}.py`")
    return ", ".join(texts)


def named(text: str) -> list[str]:
    """Every file that a page names, with braces opened.

    >>> named("`train.py`, `data/{load,digits}.py`")
    ['train.py', 'data/load.py', 'data/digits.py']
    """
    found = []
    for path in re.findall(r"`([\w/{},]+\.py)`", text):
        if "{" in path:
            room, inside = path.split("{")
            found += [f"{room}{name}.py" for name in inside.removesuffix("}.py").split(",")]
        else:
            found.append(path)
    return found


def write() -> None:
    lines = [BEGIN, f"Recorded {datetime.date.today():%d %B %Y}.", ""]
    with tempfile.TemporaryDirectory() as place:
        run = ""
        for i, (title, (words, wanted)) in enumerate(WALKS.items()):
            out = f"{place}/{i}"
            run = run or out
            given = [word.format(run=run) for word in words] + ([f"out={out}"] if words[0] != "report" else [])
            command = [sys.executable, "-m", "benchmarks.walks", *given]
            files = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
            seen = files.split("recorded:\n")[1].splitlines()
            lines += [f"### {title}: {len(seen)} files", ""]
            parts = chapters(seen, wanted)
            lines += [f"{n}. {what}: {by_room(part)}." for n, (what, part) in enumerate(parts, 1)] + [""]
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + "\n".join(lines) + END + rest.split(END)[1])


if __name__ == "__main__":
    if sys.argv[1:]:
        print("recorded:", *record(sys.argv[1:]), sep="\n")
    else:
        write()
