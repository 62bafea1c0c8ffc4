"""`python -m benchmarks`: all of it.  `--only losses`, `--only memory`, ...: a part."""

import argparse
import datetime
import importlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks import machine
from benchmarks.rows import Row, lines, missed
from benchmarks.timing import Clock

RESULTS = Path(__file__).parent / "results"
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


def sections(budget: float, clock: Clock) -> dict[str, Callable[[], Iterable[Row]]]:
    return {
        "losses": lambda: _run("losses", budget=budget, clock=clock),
        "sweep": lambda: _run("sweep", budget=budget, clock=clock),
        "ranks": lambda: _run("rank_time"),
        "memory": lambda: _run("loss_memory"),
        "sim": lambda: _run("sim", budget=budget, clock=clock),
        "views": lambda: _run("views", budget=budget, clock=clock),
        "data": lambda: _run("data"),
        "pretrain": lambda: _run("pretrain"),
        "compiled": lambda: _run("compiled"),
        "evaluate": lambda: _run("evaluate", clock=clock),
        "latentdr": lambda: _run("latentdr", budget=budget, clock=clock),
        "patch_ntxent": lambda: _run("patch_ntxent", budget=budget, clock=clock),
        "ser": lambda: _run("ser", budget=budget, clock=clock),
        "page": lambda: _run("page"),
        "shared_machine": lambda: _run("shared_machine"),
        "jobs": lambda: _run("jobs"),
        "doctor": lambda: _run("doctor"),
        "freed_memory": lambda: _run("freed_memory"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=sections(0, time.perf_counter))
    parser.add_argument("--budget", type=float, default=60.0, help="seconds at most for one case (default 60)")
    parser.add_argument("--threads", type=int, help="of torch; default: its own choice")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: with --threads 1, on a busy machine")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the dated JSON")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # for the processes in which memory is measured
    about = machine.description() | {"clock": options.clock}
    print("  ".join(f"{key} {value}" for key, value in about.items() if key != "cpu"))
    print(about["cpu"])
    chosen = sections(options.budget, CLOCKS[options.clock])
    for name in [options.only] if options.only else chosen:
        print(f"\n{name}")
        rows = _printed(chosen[name]())
        if rows:
            store(options.out, name, about, rows)
            print(f"\n{len(missed(rows))} of {sum(row.met is not None for row in rows)} targets missed")


def store(directory: Path, section: str, about: dict[str, str], rows: list[Row]) -> Path:
    """One file a day; a section that is measured again replaces itself there."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{datetime.date.today().isoformat()}.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    known[section] = {"machine": about, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(known, indent=1) + "\n")
    return path


def _run(module: str, **options: Any) -> Iterable[Row]:
    """The rows of benchmarks.<module>; none, with the reason, where something that it imports is not installed."""
    try:
        found: Iterable[Row] = importlib.import_module(f"benchmarks.{module}").run(**options)
    except ImportError as missing:
        print(f"skipped: {missing}")
        return []
    return found


def _printed(rows: Iterable[Row]) -> list[Row]:
    """The rows, printed group by group as they are measured."""
    seen: list[Row] = []

    def watched() -> Iterator[Row]:
        for row in rows:
            seen.append(row)
            yield row

    for line in lines(watched()):
        print(line, flush=True)
    return seen


if __name__ == "__main__":
    main()
