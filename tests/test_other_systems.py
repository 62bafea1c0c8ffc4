"""A machine without fork, affinities, handles of directories and case-sensitive names, as Windows and macOS are.

In a process of its own, because these are taken away before reglet is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

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

STEPS = """
import json, warnings
from pathlib import Path
from reglet import cli
from reglet.export import load_encoder

out = Path(sys.argv[1])
words = ["data=digits", "model=convnet", "method=visreg", "views=digits", "labels=40", "batch=20", "epochs=1",
         "size=16", "loss.slices=8", "projector=16-8", "knn_every=0", "accelerator=cpu", f"out={out}"]
assert cli.main(["pretrain", *words]) == 0
assert (out / "encoder.safetensors").exists()
load_encoder(out)
assert cli.main(["export", f"run={out}", f"out={out / 'again'}"]) == 0
assert cli.main(["report", str(out)]) == 0
assert (out / "report.html").exists()
print("done")
"""


def test_train_save_export_report(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TAKEN_AWAY + STEPS)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run")], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("done\n"), done.stdout[-2000:] + done.stderr[-4000:]
