"""`python -m benchmarks.speed` writes docs/speed.md from the newest stored measurement of each section."""

import json
from pathlib import Path
from typing import Any

from benchmarks.__main__ import RESULTS
from benchmarks.rows import Row

FILE = Path(__file__).parent.parent / "docs" / "speed.md"

INTRODUCTION = """\
# Speed and memory

`make bench` measures, and `python -m benchmarks.speed` writes this page from `benchmarks/results/`; do not edit. Each
section names the commit and the machine that it was measured on.

- A round runs reglet, the naive formula, lightly and a 2048 x 2048 matrix product one after another, forward and
  backward on the same inputs. Before that, their values and gradients are compared.
- *Value* is the median over rounds of the ratio within a round. *Spread* is the tenth and ninetieth percentile.
- *Share of matmul rate* takes the matrix products that the loss needs. It divides their operations by the time of the
  loss, and by the rate of the 2048 x 2048 product.
- *Peak memory* is what the kernel counted in a separate process, beyond what was resident before the step.
- *sweep* has every loss at small to large sizes.
- *ranks* has the CPU time of one of several processes, because here they outnumber the cores.
"""


def newest(directory: Path = RESULTS) -> dict[str, tuple[str, dict[str, Any]]]:
    """section -> (date, what was stored)."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for path in sorted(directory.glob("*.json")):
        for section, stored in json.loads(path.read_text()).items():
            found[section] = (path.stem, stored)
    return found


def document(found: dict[str, tuple[str, dict[str, Any]]]) -> str:
    parts = [INTRODUCTION]
    for section, (date, stored) in found.items():
        about = ", ".join(f"{key} {value}" for key, value in stored["machine"].items())
        rows = [Row(**row) for row in stored["rows"]]
        parts += [f"## {section}, {date}\n", f"{about}\n", _table(rows)]
    return "\n".join(parts)


def _table(rows: list[Row]) -> str:
    lines = ["| what | size | measure | value | spread | target | met |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        spread = "" if row.low is None or row.low == row.high else f"{row.low:.3g} to {row.high:.3g}"
        target = "" if row.target is None else f"{row.bound} {row.target:.3g}"
        met = {None: "", True: "yes", False: "**no**"}[row.met]
        measure = f"{row.metric} {row.against}".strip()
        lines.append(f"| {row.name} | {row.size} | {measure} | {row.value:.3g} | {spread} | {target} | {met} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = document(newest())
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
