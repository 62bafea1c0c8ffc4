"""Files that cannot be read.  They are listed with the reason and counted; too many are an error."""

import json
from pathlib import Path
from threading import Lock

FILE = "unreadable.jsonl"
MOST = 0.01  # share of the files


class Unreadable:
    """name -> reason.  of: the number of all files.

    One broken file never stops a run.  More than the share `most` do, because then something else is wrong.
    """

    def __init__(self, of: int, *, where: str, most: float = MOST) -> None:
        self.of, self.where, self.most = of, where, most
        self.reasons: dict[str, str] = {}
        self._path: Path | None = None
        self._written: set[str] = set()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.reasons)

    def add(self, name: str, error: BaseException) -> None:
        with self._lock:
            if name not in self.reasons:
                self.reasons[name] = f"{type(error).__name__}: {error}"
                self._write()
        self.require_few()

    def require_few(self) -> None:
        if len(self.reasons) > max(1, self.most * self.of):
            raise TooManyUnreadableError(
                f"{len(self.reasons)} of the {self.of} files in {self.where} cannot be read, which is more than "
                f"{self.most:.0%}. The first is {self.first}"
            )

    @property
    def first(self) -> str:
        """The first file and the reason, in words."""
        return next((f"{name} ({reason})" for name, reason in self.reasons.items()), "none")

    def write_to(self, path: Path) -> None:
        """From now on, append a line of JSON to `path` for each file."""
        with self._lock:
            self._path = path
            if path.exists():
                self._written = {json.loads(line)["file"] for line in path.read_text().splitlines() if line}
            self._write()

    def _write(self) -> None:
        fresh = {name: reason for name, reason in self.reasons.items() if name not in self._written}
        if self._path is None or not fresh:
            return
        lines = [json.dumps({"file": name, "reason": reason}) + "\n" for name, reason in fresh.items()]
        with self._path.open("a") as file:
            file.write("".join(lines))
        self._written |= fresh.keys()


class TooManyUnreadableError(ValueError):
    """So many files are broken that something else must be wrong."""
