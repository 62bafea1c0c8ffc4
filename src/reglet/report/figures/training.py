"""Curves over the steps of training."""

from collections.abc import Iterator

from reglet.report.figures.style import INK, Figure, Json, colour, dash, layout, numbers, plain, spans_decades
from reglet.report.gather.training import Curve, Training


def terms(runs: dict[str, Training]) -> Figure:
    """Every term of the loss: a colour for each term, a dash for each run."""
    names = list(dict.fromkeys(term for run in runs.values() for term in run.terms))
    values = [v for run in runs.values() for c in run.terms.values() for v in c.values]
    data = [
        line(run.terms[term], _name(term, label, runs), colour(i + 1), dash(r), wide=term == "loss")
        for i, term in enumerate(names)
        for r, (label, run) in enumerate(runs.items())
        if term in run.terms
    ]
    return {"data": data, "layout": layout("step", "weighted term", height=380, log_y=spans_decades(values))}


def gradient(runs: dict[str, Training]) -> Figure | None:
    """The norm, with its spikes marked."""
    data: list[Json] = []
    for i, (label, run) in enumerate(runs.items()):
        if not run.grad_norm.steps:
            continue
        data.append(line(run.grad_norm, _name("gradient norm", label, runs), colour(i + 1), dash(i)))
        if run.spikes:
            at = [run.grad_norm.steps[s] for s in run.spikes]
            high = [run.grad_norm.values[s] for s in run.spikes]
            marker = {"symbol": "triangle-down", "size": 11, "color": "var(--c6)"}
            data.append(
                {"type": "scatter", "mode": "markers", "x": at, "y": numbers(high), "marker": marker,
                 "name": plain(_name("spike", label, runs))}
            )  # fmt: skip
    values = [v for run in runs.values() for v in run.grad_norm.values]
    return {"data": data, "layout": layout("step", "gradient norm", log_y=spans_decades(values))} if data else None


def rate(runs: dict[str, Training]) -> Figure | None:
    return _single(runs, "lr", "learning rate")


def online_knn(runs: dict[str, Training]) -> Figure | None:
    figure = _single(runs, "knn", "accuracy")
    if figure is not None:
        figure["layout"]["yaxis"] |= {"tickformat": ".0%", "rangemode": "tozero"}
    return figure


def rank(runs: dict[str, Training]) -> Figure | None:
    return _single(runs, "rank", "RankMe of the features")


LEVELS = {"healthy": colour(3), "suspicion": colour(6), "alarm": colour(2)}


def watched(runs: dict[str, Training]) -> Figure | None:
    """The doctor's time line: a strip for each run, and in it a piece from each look to the next."""
    seen = {label: run for label, run in runs.items() if run.looks}
    if not seen:
        return None
    pieces: dict[str, list[tuple[str, int, int, str]]] = {level: [] for level in LEVELS}
    for label, run in seen.items():
        ends = [*(look.step for look in run.looks[1:]), run.last_step]
        for look, end in zip(run.looks, ends, strict=True):
            level = "alarm" if look.sure else look.verdict
            pieces[level].append((plain(label), look.step, end - look.step, f"step {look.step}: {plain(look.verdict)}"))
    data: list[Json] = [
        {"type": "bar", "orientation": "h", "name": level, "y": [p[0] for p in found], "base": [p[1] for p in found],
         "x": [p[2] for p in found], "text": [p[3] for p in found], "hoverinfo": "text", "textposition": "none",
         "marker": {"color": LEVELS[level], "line": {"color": "var(--ground)", "width": 1}}}
        for level, found in pieces.items()
        if found
    ]  # fmt: skip
    figure: Figure = {"data": data, "layout": layout("step", height=120 + 60 * len(seen))}
    figure["layout"] |= {"barmode": "overlay", "bargap": 0.5, "annotations": [*_alarms(seen)]}
    figure["layout"]["yaxis"] |= {"type": "category", "autorange": "reversed", "showticklabels": len(runs) > 1}
    figure["layout"]["xaxis"]["range"] = [0, max(run.last_step for run in seen.values())]
    return figure


def _alarms(runs: dict[str, Training]) -> Iterator[Json]:
    """The name of each run's first alarm, above its strip."""
    for label, run in runs.items():
        if (first := run.first_alarm) is None:
            continue
        late = first.step > run.looks[-1].step / 2
        yield {"x": first.step, "y": plain(label), "text": f"{plain(first.verdict)}, step {first.step}",
               "xanchor": "right" if late else "left", "yshift": 26, "showarrow": False,
               "font": {"color": INK, "size": 13}}  # fmt: skip


def line(curve: Curve, name: str, ink: str, dashes: str, *, wide: bool = False) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(curve.steps) < 40 else "lines",
        "x": curve.steps,
        "y": numbers(curve.values),
        "name": plain(name),
        "line": {"color": ink, "dash": dashes, "width": 3 if wide else 1.8},
        "marker": {"size": 4},
    }


def _single(runs: dict[str, Training], key: str, title: str) -> Figure | None:
    curves: dict[str, Curve] = {label: getattr(run, key) for label, run in runs.items()}
    data = [line(c, label, colour(i + 1), dash(i)) for i, (label, c) in enumerate(curves.items()) if c.steps]
    if not data:
        return None
    figure: Figure = {"data": data, "layout": layout("step", title, height=260)}
    figure["layout"]["showlegend"] = len(runs) > 1
    return figure


def _name(what: str, label: str, runs: dict[str, Training]) -> str:
    return what if len(runs) == 1 else f"{what}, {label}"
