"""The section for several runs: differences with intervals."""

from typing import Any

from reglet.report.across import PROBES, Compared, by_image, over_seeds
from reglet.report.figures.across import differences
from reglet.report.gather import RunData
from reglet.report.page.markup import Figures, esc, missing, note, section, table
from reglet.runs import Paired

Json = dict[str, Any]


def across(runs: list[RunData], compared: Compared | None, figures: Figures) -> str:
    if len(runs) < 2:
        return ""
    parts = []
    if compared is not None:
        parts.append(_compared(compared))
    if (seeds := over_seeds(runs)) is not None:
        rows = [_pair(PROBES[name], pair, 100) for name, pair in seeds.scores.items()]
        parts.append(table(_head(seeds.base, seeds.candidate), rows, label="Differences over seeds"))
    if found := by_image(runs):
        rows = []
        for d in found:
            interval = f"{100 * d.low:+.1f} to {100 * d.high:+.1f}"
            told = "resolved" if d.resolved else "not resolved"
            name = esc(f"{d.candidate} minus {d.base}, {PROBES.get(d.probe, d.probe)}")
            rows.append([name, f"{100 * d.difference:+.1f}", interval, told, f"{d.n:,}"])
        head = ["points, over the same test images", "difference", "95 % interval", "", "images"]
        parts.append(figures.place(differences(found), title="Differences from the first run", says="image by image"))
        parts.append(table(head, rows, label="Differences over images"))
        parts.append(
            note("These intervals are of these encoders on these images. What another seed would do is not in them.")
        )
    else:
        parts.append(missing("Differences", "the runs were not probed on the same test images"))
    return section("across", "Run against run", "".join(parts))


def _compared(compared: Compared) -> str:
    stored = compared.stored
    rows = [
        _pair(compared.names.get(key, key), Paired(**pair), 1 if key == "rank" else 100)
        for key, pair in stored["scores"].items()
    ]
    shown = table(_head("base", "candidate"), rows, label="Differences over seeds")
    base, candidate = stored["costs"]
    ratio = stored["ratio"]
    lines = [
        ["step time, ms", *(f"{1000 * c['seconds']:.1f}" for c in (base, candidate)), f"{ratio['time']:.3f}"],
        ["parameters", *(f"{c['parameters']:,}" for c in (base, candidate)), f"{ratio['parameters']:.3f}"],
        ["GFLOPs per step", *(f"{c['flops'] / 1e9:.2f}" for c in (base, candidate)), f"{ratio['flops']:.3f}"],
    ]
    if ratio["memory"] is not None:
        memory = [f"{c['memory'] / 1e6:.0f}" for c in (base, candidate)]
        lines.insert(1, ["peak memory, MB", *memory, f"{ratio['memory']:.3f}"])
    return shown + table(["cost of a step", "base", "candidate", "ratio"], lines, label="Cost of a step")


def _head(base: str, candidate: str) -> list[str]:
    return ["over seeds", esc(base), esc(candidate), "difference", "95 % interval", "p", "seeds", ""]


def _pair(name: str, pair: Paired, scale: int) -> list[str]:
    return [
        esc(name),
        f"{scale * pair.base:.2f}",
        f"{scale * pair.candidate:.2f}",
        f"{scale * pair.difference:+.2f}",
        f"{scale * pair.low:+.2f} to {scale * pair.high:+.2f}",
        f"{pair.p:.3f}",
        str(pair.seeds),
        esc(pair.verdict),
    ]
