"""Real processes that train the toy, forked from a server that has imported torch already, so that they start soon."""

import multiprocessing as mp
import os
import socket
from collections.abc import Mapping
from importlib import import_module
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_context = mp.get_context("forkserver")
_context.set_forkserver_preload(["reglet.train"])


def start(
    *words: str, module: str = "tests.engine.toy", environment: Mapping[str, str] | None = None
) -> ForkServerProcess:
    """`main` of the module with these words."""
    process = _context.Process(target=_main, args=(words, module, dict(environment or {}), str(Path.cwd())))
    process.start()
    return process


def code(process: ForkServerProcess, *, seconds: float = 240) -> int | None:
    """The exit code, negative for a signal."""
    process.join(seconds)
    if process.is_alive():
        process.kill()
        raise TimeoutError("the process did not end")
    return process.exitcode


def start_ranks(world: int, *words: str, module: str = "tests.engine.toy") -> list[ForkServerProcess]:
    """As torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "TORCHELASTIC_RUN_ID": "test",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
    }
    ranks = [{**common, "RANK": str(r), "LOCAL_RANK": str(r)} for r in range(world)]
    return [start(*words, module=module, environment=rank) for rank in ranks]


def _main(words: tuple[str, ...], module: str, environment: dict[str, str], folder: str) -> None:
    os.environ.update(environment)
    os.chdir(folder)
    import_module(module).main(list(words))
