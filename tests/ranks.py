"""Real processes for a test: run one function on W ranks of a gloo group, and collect what each rank returns.

    results = run("tests.losses.test_ranks:work", world=2, folder=tmp_path)

Children start from nothing but the command line, so no state of pytest, nor its import hooks, reaches them.
"""

import importlib
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[1]


def run(target: str, *, world: int, folder: Path, environment: dict[str, str] | None = None) -> list[Any]:
    """`target` is module:function; the function takes (rank, world).  World 1 is a lone process without a group."""
    command = [sys.executable, "-m", "tests.ranks", target, str(world), str(folder)]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    logs = [folder / f"{rank}.log" for rank in range(world)]
    children = []
    for rank, log in enumerate(logs):
        with log.open("w") as out:
            children.append(
                subprocess.Popen(
                    [*command, str(rank)], cwd=ROOT, env=surroundings, stdout=out, stderr=subprocess.STDOUT
                )
            )
    try:
        codes = [child.wait(timeout=300) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    output = "\n".join(f"rank {rank}:\n{log.read_text()}" for rank, log in enumerate(logs))
    assert codes == [0] * world, f"exit codes {codes}\n{output}"
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)]


def main(target: str, world: int, folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    module, function = target.split(":")
    work = getattr(importlib.import_module(module), function)
    if world > 1:
        store = f"file://{folder.resolve()}/store"
        dist.init_process_group("gloo", store, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    torch.save(work(rank, world), folder / f"{rank}.pt")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
