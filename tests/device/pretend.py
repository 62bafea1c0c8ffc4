"""The pretend accelerator of pretend.cpp: compiled once, registered with torch under the name `pretend`."""

import ctypes
import fcntl
import hashlib
import os
import subprocess
import tempfile
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("pretend.cpp")
REGLET = f"{os.sep}reglet{os.sep}"
_Watch = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)


class UnavailableError(Exception):
    """There is no compiler, or it cannot read torch's headers."""


@dataclass
class Traffic:
    """What went between host and device: the operation, and the line of reglet that asked for it."""

    read: list[str] = field(default_factory=list)  # from the device: the host waits until all kernels are done
    copy: list[str] = field(default_factory=list)  # to the device from pinned memory: nobody waits
    blocking_copy: list[str] = field(default_factory=list)  # to the device: the host waits

    def note(self, kind: bytes, operation: bytes) -> None:
        frames = [f for f in traceback.extract_stack() if REGLET in f.filename and "/tests/" not in f.filename]
        where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        getattr(self, kind.decode().replace(" ", "_")).append(operation.decode() + where)


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Record what goes between host and device inside of the block."""
    found = Traffic()
    watch = _Watch(found.note)
    _library().pretend_watch(watch)
    try:
        yield found
    finally:
        _library().pretend_watch(_Watch())


@contextmanager
def without_float64() -> Iterator[None]:
    """The device as MPS is: any float64 tensor on it is a TypeError."""
    _library().pretend_float64(ctypes.c_bool(False))
    try:
        yield
    finally:
        _library().pretend_float64(ctypes.c_bool(True))


def register() -> None:
    """Make `torch.device("pretend")` known.  To be called before the first backward pass of the process, because torch
    counts its devices then."""
    if torch._C._get_privateuse1_backend_name() == "pretend":
        return
    _library().pretend_start()
    torch.utils.rename_privateuse1_backend("pretend")
    generator = torch.Generator("pretend")  # the first is the device's default
    module = types.ModuleType("torch.pretend")
    module.__dict__.update(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        set_device=lambda device: None,
        device=lambda device: nullcontext(),
        _is_in_bad_fork=lambda: False,
        manual_seed=generator.manual_seed,
        manual_seed_all=generator.manual_seed,
        get_rng_state=lambda device=None: generator.get_state(),
        set_rng_state=lambda state, device=None: generator.set_state(state),
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        synchronize=lambda device=None: torch.accelerator.synchronize(),
    )
    torch._register_device_module("pretend", module)
    torch.utils.generate_methods_for_privateuse1_backend()


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(_compiled()))
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"the pretend accelerator could not be built: {error}") from error


def _compiled() -> Path:
    """20 s, once for each version of the source and of torch; processes that come meanwhile wait."""
    from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

    digest = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "reglet-tests"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"pretend-{digest}.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / "made.so"
                command = [get_cxx_compiler(), "-std=c++20", "-O0", "-shared", "-fPIC", str(SOURCE), "-o", str(made)]
                command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
                command += [f"-I{path}" for path in include_paths()]
                for path in library_paths():
                    command += [f"-L{path}", f"-Wl,-rpath,{path}"]
                done = subprocess.run([*command, "-ltorch_cpu", "-lc10"], capture_output=True, text=True, check=False)
                if done.returncode:
                    raise OSError(done.stderr[-2000:])
                made.replace(library)
    return library
