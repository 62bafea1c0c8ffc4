"""README's commands as a stranger types them: when the first line comes, how long nothing is said, when they end.

    python -m benchmarks.first_minutes FOLDER [WORD ...]

FOLDER holds photos/CLASS/*.jpg and is where the commands run.  WORDs keep the commands that contain one of them.
Output goes to a pipe, as into a log file.
"""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def commands() -> list[str]:
    """Those of the block "With a folder of images", without their comments."""
    block = re.search(
        r"^## With a folder of images\s+```\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert block, "README has no block of commands"
    return [line.split("  #")[0].strip() for line in block[1].splitlines()]


def timed(command: str, folder: Path) -> tuple[int, float, float, float]:
    """Exit code, seconds to the first line, longest silence, all seconds."""
    words = [sys.executable, "-u", "-m", "reglet.cli", *shlex.split(command)[1:]]
    start = last = time.monotonic()
    first, silence = float("inf"), 0.0
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        with (folder / "first_minutes.log").open("a", encoding="utf-8") as log:
            log.write(f"$ {command}\n")
            for line in process.stdout:
                now = time.monotonic()
                first, silence, last = min(first, now - start), max(silence, now - last), now
                log.write(f"{now - start:7.1f}  {line}")
    end = time.monotonic()
    return process.returncode, first, max(silence, end - last), end - start


def main(folder: Path, kept: list[str]) -> None:
    print("| command | first line, s | longest silence, s | all, s | exit |\n|---|---|---|---|---|", flush=True)
    for command in commands():
        if not kept or any(word in command for word in kept):
            code, first, silence, total = timed(command, folder)
            row = " ".join(command.split())
            print(f"| `{row}` | {first:.1f} | {silence:.1f} | {total:.0f} | {code} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
