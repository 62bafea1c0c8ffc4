"""What every recipe shares: arms computed by a few processes, stored one by one, compared in pairs.

An arm is a frozen dataclass that says everything its result depends on, and its key is a digest of that.  So a stored
result is either that of the very same arm or not found, and a recipe that was interrupted goes on where it was.
"""

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from scipy.stats import t as student

REPO = Path(__file__).resolve().parents[1]
DATA = REPO.parent / "shared/data/cifar10_12k.npz"
Result = dict[str, Any]
R = TypeVar("R", bound="Run")
D = TypeVar("D")


@dataclass(frozen=True)
class Run:
    """Subclasses add the fields."""

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return ", ".join(f"{k} {v}" for k, v in asdict(self).items() if k != "data")


def store(run: Run, result: Result, folder: Path) -> None:
    """All of it or nothing, whatever stops the process."""
    path = folder / f"{run.key}.json"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps({"run": asdict(run)} | result, indent=1))
    partial.replace(path)


def stored(run: Run, folder: Path) -> Result | None:
    """The result of this very arm.  A file that says it is of another one is as good as none."""
    path = folder / f"{run.key}.json"
    result: Result | None = json.loads(path.read_text()) if path.exists() else None
    return result if result is not None and result["run"] == asdict(run) else None


def execute(
    runs: Sequence[R],
    compute: Callable[[R, D], Result],
    *,
    load: Callable[[Path], D],
    options: argparse.Namespace,
    console: Console,
    shown: str,
) -> list[Result]:
    """What is stored is read, what is missing is computed, and stored as soon as it is there.

    compute, load: functions of a module, because other processes call them.  shown: the measure that is printed.
    """
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if stored(run, folder) is None]
    if len(missing) < len(runs):
        console.print(f"{len(runs) - len(missing)} of {len(runs)} runs are stored in {folder}; going on from there")
    if missing:
        _compute_all(missing, compute, load, options, console, shown)
    return [found for run in runs if (found := stored(run, folder)) is not None]


def _compute_all(
    missing: list[R],
    compute: Callable[[R, D], Result],
    load: Callable[[Path], D],
    options: argparse.Namespace,
    console: Console,
    shown: str,
) -> None:
    commit = current_commit()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as progress,
        ProcessPoolExecutor(
            min(options.workers, len(missing)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(load, options.data),
        ) as pool,
    ):
        task = progress.add_task("runs", total=len(missing))
        waiting, under_way = list(reversed(missing)), dict[Future[Result], R]()
        try:
            while waiting or under_way:
                # No more than can start at once: what the pool was given it computes, even when asked to stop.
                while waiting and len(under_way) < options.workers:
                    run = waiting.pop()
                    under_way[pool.submit(_work, compute, run, options.out, commit)] = run
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    run, result = under_way.pop(future), future.result()
                    progress.advance(task)
                    label = f"{run.name}: {shown} {result[shown]:.2f}, {result['seconds']:.0f} s"
                    progress.console.print(label, highlight=False, soft_wrap=True)
        except BaseException:
            progress.console.print("stopping: the runs under way are finished and stored first")
            raise


_data: Any  # of a worker process: read once, not sent with every run


def _start_worker(load: Callable[[Path], Any], path: Path) -> None:
    global _data
    torch.set_num_threads(1)
    # Ctrl-C is for the parent, which lets us finish and store.  A group of our own, because `fit` handles it too.
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _data = load(path)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(compute: Callable[[R, Any], Result], run: R, folder: Path, commit: str) -> Result:
    started, cpu = time.time(), time.process_time()
    result = compute(run, _data)
    result |= {"seconds": time.time() - started, "cpu_seconds": time.process_time() - cpu}
    result |= {"commit": commit, "date": time.strftime("%Y-%m-%d")}
    store(run, result, folder)
    return result


def current_commit() -> str:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPO, capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its 95 % t interval."""
    n = len(values)
    half = student.ppf(0.975, n - 1) * stdev(values) / math.sqrt(n) if n > 1 else math.nan
    return mean(values), float(half)


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[float, float]:
    """The interval of a - b over the seeds that both have."""
    return interval([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])


def arguments(name: str, says: str, *, seeds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=says)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=REPO / "runs/recipes" / name)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    return parser


def require_data(path: Path) -> str:
    """Digest of the file, which the runs depend on."""
    if not path.exists():
        raise SystemExit(
            f"no data at {path}. Give --data an .npz with images (n, h, w, 3) uint8, labels (n,) and split (n,), "
            f"0 for training and 1 for test."
        )
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def require_files(folder: Path, names: Iterable[str]) -> str:
    """Digest of some files in a folder, for recipes whose workers read them as they go."""
    paths = [folder / name for name in names]
    if missing := [path.name for path in paths if not path.exists()]:
        raise SystemExit(f"no {' and '.join(missing)} in {folder}: give --data the folder that has them")
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def itself(path: Path) -> Path:
    """`load` of such a recipe."""
    return path


def report(folder: Path, results: Sequence[Result], rows: Sequence[Result], text: str) -> None:
    """The table on the screen and in summary.md, its numbers in summary.json."""
    facts = {
        "runs": len(results),
        "minutes_of_all_runs": sum(r["seconds"] for r in results) / 60,
        "cpu_minutes_of_all_runs": sum(r["cpu_seconds"] for r in results) / 60,
        "commits": sorted({r["commit"] for r in results}),
        "dates": sorted({r["date"] for r in results}),
        "torch": torch.__version__,
    }
    (folder / "summary.json").write_text(json.dumps({"facts": facts, "rows": rows}, indent=1))
    (folder / "summary.md").write_text(f"{text}\n\n{json.dumps(facts)}\n")
    print(text)
    print(json.dumps(facts))


def main(run: Callable[[argparse.Namespace, Console], None], options: argparse.Namespace) -> int:
    """Exit code of `run`, which may be stopped."""
    console = Console()
    try:
        run(options, console)
    except KeyboardInterrupt:
        console.print("stopped. What was finished is stored; the same command goes on from there")
        return 130
    return 0
