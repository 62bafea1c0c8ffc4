"""All runs of an experiment.  Stored runs are read; the others are computed, and each is stored when it is finished.

`jobs` worker processes of one thread each share the machine.  Each reads the data once.  After Ctrl-C the parent starts
no more runs and lets the current ones finish.  Workers end when their parent ends, however that happens.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from reglet import progress
from reglet.dist import rank
from reglet.freed_memory import keep_freed_memory
from reglet.runs.run import Finished, Json, Run, as_read, store, stored

D = TypeVar("D")
Jobs = int | Literal["auto"]
Done = Callable[[Finished], None]


def execute(
    runs: Sequence[Run],
    compute: Callable[[Run, D], Json],
    *,
    load: Callable[[], D],
    out: Path,
    jobs: Jobs = "auto",
    about: Mapping[str, Any] | None = None,
    line: Callable[[Finished], str] | None = None,
) -> list[Finished]:
    """The results, in the order of `runs`.

    compute: run, data -> scores.  It may write files beside the result, named by the run's key; the result is written
        last.  It and `load` are functions of a module, or a `partial` of one, because other processes call them.
    jobs: number of processes; 1 computes in this one.
    about: stored beside each result.  line: the text that is printed for a result.

    >>> from tempfile import TemporaryDirectory
    >>> def score(run, data):
    ...     return {"knn": data + run.seed}
    >>> with TemporaryDirectory() as place:
    ...     results = execute([Run("SMI", 0), Run("SMI", 1)], score, load=lambda: 10, out=Path(place), jobs=1)
    >>> [result.scores["knn"] for result in results]
    [10, 11]
    """
    out.mkdir(parents=True, exist_ok=True)
    results = {run.key: stored(run, out) for run in runs}
    missing = [run for run in runs if results[run.key] is None]
    if missing:
        with progress.shown(), progress.work("runs", total=len(missing)) as work:
            if len(missing) < len(runs):
                progress.line(
                    f"{len(runs) - len(missing)} of {len(runs)} runs are stored in {out}; going on from there"
                )

            def done(finished: Finished) -> None:
                results[finished.run.key] = finished
                work.advance()
                progress.line((line or in_words)(finished))

            count = min(resolve(jobs), len(missing))
            job = Job(compute, load, out, dict(about or {}))
            if count == 1:
                _here(missing, job, done)
            else:
                _in_workers(missing, job, count, done)
    return [found for run in runs if (found := results[run.key]) is not None]


def in_words(finished: Finished) -> str:
    numbers = [f"{name} {value:.4g}" for name, value in finished.scores.items() if isinstance(value, int | float)]
    return f"{finished.run.name}: {', '.join(numbers[:3])}, {finished.about['seconds']:.0f} s"


def resolve(jobs: Jobs) -> int:
    """The number of processes.  auto: one for each core, but only one if the machine has an accelerator."""
    if jobs == "auto":
        if torch.accelerator.is_available():
            return 1
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jobs < 1:
        raise ValueError(f"jobs is auto or at least 1, got {jobs}")
    return jobs


class Job:
    """What a worker does with each run.  If a run has several ranks, the first stores the result."""

    def __init__(self, compute: Callable[[Run, Any], Json], load: Callable[[], Any], out: Path, about: Json) -> None:
        self.compute, self.load, self.out, self.about = compute, load, out, about

    def __call__(self, run: Run, data: Any) -> Finished:
        started, cpu = time.time(), time.process_time()
        scores = self.compute(run, data)
        took = {"seconds": time.time() - started, "cpu_seconds": time.process_time() - cpu}
        versions = {"torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
        finished = Finished(run, as_read(scores), as_read(took | versions | self.about))
        if rank() == 0:
            store(finished, self.out)
        return finished


def _here(missing: Sequence[Run], job: Job, done: Done) -> None:
    data = job.load()
    for run in missing:
        done(job(run, data))


def _in_workers(missing: Sequence[Run], job: Job, count: int, done: Done) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=spawn, initializer=_start_worker, initargs=(job,)) as pool:
        waiting, under_way = list(reversed(missing)), set[Future[Finished]]()
        try:
            while waiting or under_way:
                # No more than can start at once: the pool computes all that it was given, even when asked to stop.
                while waiting and len(under_way) < count:
                    under_way.add(pool.submit(_work, waiting.pop()))
                finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in finished:
                    done(future.result())
        except BaseException:
            progress.line("stopping: the runs under way are finished and stored first")
            raise


_job: Job  # of a worker process
_data: Any  # of a worker process: read once, not sent with every run


def _start_worker(job: Job) -> None:
    global _job, _data
    torch.set_num_threads(1)
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # `fit` leaves an ignored signal ignored
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _job, _data = job, job.load()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(run: Run) -> Finished:
    return _job(run, _data)
