"""A machine without fork, affinities, handles of directories and case-sensitive names, whose paths have backslashes: as
Windows and macOS are.

In a process of its own, because these are taken away before reglet is imported.
"""

import os
import pathlib
import subprocess
import sys
from pathlib import Path

import pytest

TAKEN_AWAY = """
import builtins, multiprocessing, os, stat, sys
import torch  # which asks for the platform, not for what there is

for name in ("fork", "forkpty", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "posix_spawn"):
    delattr(os, name)
multiprocessing.set_start_method("spawn")

real_open, real_fsync = os.open, os.fsync

def no_directories(path, flags, *args, **kwargs):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))
    return real_open(path, flags, *args, **kwargs)

def no_fsync_of_directories(handle):
    handle = handle if isinstance(handle, int) else handle.fileno()
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        raise OSError(22, "Invalid argument")
    real_fsync(handle)

os.open, os.fsync = no_directories, no_fsync_of_directories

# Names that differ in case only are one file: whoever writes a second spelling has overwritten the first.
written = {}

def once(path, mode="r", *args, **kwargs):
    if isinstance(path, (str, os.PathLike)) and set(mode) & set("wxa"):
        full = os.path.abspath(path)
        if written.setdefault(full.lower(), full) != full:
            raise AssertionError(f"{full} is the file {written[full.lower()]} where case does not count")
    return real_file(path, mode, *args, **kwargs)

real_file = builtins.open
builtins.open = once
"""

BACKSLASHES = r"""
import functools, io, pathlib
import safetensors, safetensors.torch

def there(path):
    # As this system calls it.
    return os.fspath(path).replace("\\", "/") if isinstance(path, (str, os.PathLike)) else path

def understands(act, paths=1):
    # An operation of the system, for paths of either kind.
    @functools.wraps(act)
    def acted(*args, **kwargs):
        return act(*map(there, args[:paths]), *args[paths:], **kwargs)
    return acted

pathlib._posix_flavour.altsep = "\\"  # so a word with backslashes is taken apart
plain = pathlib.PurePosixPath.__str__
pathlib.PurePosixPath.__str__ = lambda self: plain(self).replace("/", "\\")

os.sep, os.altsep, os.path.sep, os.path.altsep = "\\", "/", "\\", "/"
for name in ("open stat lstat mkdir scandir listdir unlink remove rmdir chmod utime access readlink chdir statvfs "
             "truncate").split():
    setattr(os, name, understands(getattr(os, name)))
for name in ("replace", "rename", "link", "symlink"):
    setattr(os, name, understands(getattr(os, name), paths=2))
for name in "abspath realpath isabs dirname basename split splitext normpath exists isfile isdir islink".split():
    setattr(os.path, name, understands(getattr(os.path, name)))
builtins.open = io.open = understands(builtins.open)
opens, saves, loads = safetensors.safe_open, safetensors.torch.save_file, safetensors.torch.load_file
safetensors.safe_open = safetensors.torch.safe_open = lambda path, *a, **k: opens(there(path), *a, **k)
safetensors.torch.save_file = lambda tensors, path, *a, **k: saves(tensors, there(path), *a, **k)
safetensors.torch.load_file = lambda path, *a, **k: loads(there(path), *a, **k)
"""

PHOTOS = r"""
from PIL import Image
from pathlib import Path
place = Path(sys.argv[1])
if "\\" in str(place):
    assert "/" not in str(place) and Path(str(place) + "\\a\\b").parent.name == "a"
for i in range(24):
    folder = place / "photos" / ("cat", "dog")[i % 2]
    folder.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((20, 20), 90).convert("RGB").save(there(folder / f"{i}.png"))
"""

STEPS = """
import json, warnings
from pathlib import Path
from reglet import cli
from reglet.export import load_encoder

out, data = place / "run", place / "photos"
words = [f"data={data}", "model=convnet", "method=visreg", "views=digits", "batch=8", "steps=2",
         "size=16", "loss.slices=8", "projector=16-8", "accelerator=cpu", f"out={out}"]
assert cli.main(["pretrain", *words]) == 0
assert (out / "encoder.safetensors").exists()
stored = json.loads((out / "config.json").read_text())
assert (stored["out"], stored["data"]) == (str(out), str(data))
assert stored["resolved"]["data"]["classes"] == ["cat", "dog"]
load_encoder(out)
assert cli.main(["pretrain", *words, "resume=true"]) == 0
assert cli.main(["export", f"run={out}", f"out={out / 'again'}"]) == 0
assert (out / "again" / "card.json").exists()
assert cli.main(["embed", f"run={out}", f"data={data}", f"out={place / 'x.csv'}"]) == 0
assert "cat/0.png" in (place / "x.csv").read_text()  # names inside of the data are the same on every system
assert cli.main(["report", str(out)]) == 0
assert (out / "report.html").exists()
print("done")
"""


@pytest.mark.parametrize("backslashes", [False, True])
def test_train_save_export_report(tmp_path: Path, backslashes: bool) -> None:
    """The slashes of a path are Python 3.11's own business: other versions keep that elsewhere."""
    if backslashes and not hasattr(pathlib, "_posix_flavour"):
        pytest.skip("this Python cannot be told to write paths with backslashes")
    script = tmp_path / "script.py"
    script.write_text(TAKEN_AWAY + (BACKSLASHES if backslashes else "there = os.fspath\n") + PHOTOS + STEPS)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "place")], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("done\n"), done.stdout[-2000:] + done.stderr[-4000:]
