"""The section for several runs: differences with intervals."""

from reglet.report.across import PROBES, Compared, by_image, over_seeds
from reglet.report.figures.across import differences
from reglet.report.gather import RunData
from reglet.report.page.parts import Figures, Section, Table
from reglet.runs import Paired


def across(runs: list[RunData], compared: Compared | None, figures: Figures) -> Section:
    tables = [] if compared is None else _compared(compared)
    if (seeds := over_seeds(runs)) is not None:
        rows = [_pair(PROBES[name], pair, 100) for name, pair in seeds.scores.items()]
        tables.append(_over_seeds(seeds.base, seeds.candidate, rows))
    found = by_image(runs)
    chart = figures.place(
        differences(found) if found else None, title="Differences from the first run", says="image by image"
    )
    rows = [
        [
            f"{d.candidate} minus {d.base}, {PROBES.get(d.probe, d.probe)}",
            f"{100 * d.difference:+.1f}",
            f"{100 * d.low:+.1f} to {100 * d.high:+.1f}",
            "resolved" if d.resolved else "not resolved",
            f"{d.n:,}",
        ]
        for d in found
    ]
    head = ["points, over the same test images", "difference", "95 % interval", "", "images"]
    images = Table("Differences over images", head, rows)
    return Section("across", "Run against run", "Run against run", {"tables": tables, "chart": chart, "images": images})


def _compared(compared: Compared) -> list[Table]:
    stored = compared.stored
    rows = [
        _pair(compared.names.get(key, key), Paired(**pair), 1 if key == "rank" else 100)
        for key, pair in stored["scores"].items()
    ]
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
    cost = Table("Cost of a step", ["cost of a step", "base", "candidate", "ratio"], lines)
    return [_over_seeds("base", "candidate", rows), cost]


def _over_seeds(base: str, candidate: str, rows: list[list[str]]) -> Table:
    head = ["over seeds", base, candidate, "difference", "95 % interval", "p", "seeds", ""]
    return Table("Differences over seeds", head, rows)


def _pair(name: str, pair: Paired, scale: int) -> list[str]:
    return [
        name,
        f"{scale * pair.base:.2f}",
        f"{scale * pair.candidate:.2f}",
        f"{scale * pair.difference:+.2f}",
        f"{scale * pair.low:+.2f} to {scale * pair.high:+.2f}",
        f"{pair.p:.3f}",
        str(pair.seeds),
        pair.verdict,
    ]
