"""The demo's page: one HTML file with everything in it, for a light or a dark screen."""

import base64
import html
import io
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imsave
from torch import Tensor

from reglet.data import Digits

Row = dict[str, float]
Scores = dict[str, dict[str, float]]


class Run(NamedTuple):
    config: dict[str, Any]
    scores: Scores
    rows: list[Row]  # of metrics.jsonl
    train: Digits
    test: Digits
    views: list[Float[Tensor, "n 3 h w"]]  # of the first training images, in [0, 1]
    features: tuple[Float[Tensor, "m d"], Float[Tensor, "n d"]]  # of train and test, by the trained encoder
    seconds: float


class Theme(NamedTuple):
    ink: str
    faint: str
    colours: tuple[str, str, str, str]


LIGHT = Theme("#1c1c1e", "#d9d9de", ("#1f6feb", "#c2571a", "#2d8a4e", "#8250df"))
DARK = Theme("#e6e6ea", "#3a3a40", ("#6cb0ff", "#f0a36b", "#6fd08c", "#c6a0ff"))

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --soft: #5b5b63; --ground: #fbfbfc; --line: #d9d9de; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6ea; --soft: #a0a0aa; --ground: #17171a; --line: #3a3a40; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 54rem;
  margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.5rem; margin-bottom: .25rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
p.lead { font-size: 1.1rem; margin-top: .25rem; } p { max-width: 44rem; } .soft { color: var(--soft); }
table { border-collapse: collapse; } td, th { padding: .3rem 1.25rem .3rem 0; border-bottom: 1px solid var(--line);
  text-align: left; font-weight: normal; } th { color: var(--soft); } .n { text-align: right;
  font-variant-numeric: tabular-nums; } tr.best td { font-weight: 600; }
img { max-width: 100%; height: auto; display: block; margin-top: 1rem; }
img.pixels { image-rendering: pixelated; width: 100%; }
details { margin-top: 2.5rem; } summary { cursor: pointer; color: var(--soft); } code { font-size: .9em; }
"""


def write_report(path: Path, run: Run) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(page(run), encoding="utf-8")
    partial.replace(path)


def page(run: Run) -> str:
    raw, random, learned = (f"{score['linear']:.0%}" for score in run.scores.values())
    steps = int(run.rows[-1]["step"])
    images = steps * run.config["batch"]
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>reglet demo: digits</title>
<style>{STYLE}</style>
<h1>Digits, learned without their labels</h1>
<p class="lead">A linear probe reads <b>{learned}</b> of the test digits from the encoder that VISReg trained, {random}
from the same network before training and {raw} from the pixels.</p>
<p class="soft">{steps} steps, {images:,} images in two views each; {run.seconds:.0f} s for everything on this page,
threads: {torch.get_num_threads()}.</p>
{score_table(run)}
{chart(lambda axes, theme: bars(axes, theme, run.scores), "test accuracy by features", height=2.4)}
<h2>The loss, term by term</h2>
{chart(lambda axes, theme: curves(axes, theme, run.rows), "weighted loss terms against the step", height=3.2)}
<p class="soft">Invariance pulls the two views of an image together. Scale, shape and centre keep the embeddings of
a batch spread like a Gaussian, so that pulling cannot collapse them.</p>
<h2>What the network is shown</h2>
<p class="soft">Training digits above, and below each the two views that it must recognise as one.</p>
<img class="pixels" alt="digits and their views" src="{png(shown(run))}">
<h2>Nearest neighbours</h2>
<p class="soft">The first eight test digits; right of each the six training digits nearest to it by pixels, then the six
nearest by the encoder. Framed where the digit is the same.</p>
<img class="pixels" alt="nearest neighbours by pixels and by encoder" src="{png(neighbours(run))}">
<details><summary>Configuration and versions</summary>{facts(run)}</details>
</html>
"""


def score_table(run: Run) -> str:
    lines = [
        f"<tr{' class=best' if name == list(run.scores)[-1] else ''}><td>{html.escape(name)}</td>"
        f'<td class="n">{score["linear"]:.1%}</td><td class="n">{score["knn"]:.1%}</td></tr>'
        for name, score in run.scores.items()
    ]
    columns = '<th class="n">linear probe</th><th class="n">20-NN</th>'
    head = f"<tr><th>accuracy on {len(run.test.labels)} test digits</th>{columns}</tr>"
    return f"<table>{head}{''.join(lines)}</table>"


def facts(run: Run) -> str:
    packages = ("reglet", "torch", "numpy", "scikit-learn", "matplotlib", "safetensors")
    settings = {k: v for k, v in run.config.items() if not isinstance(v, dict) and v != ""}
    pairs = settings | {"python": platform.python_version()} | {name: version(name) for name in packages}
    lines = (f"<tr><td>{html.escape(k)}</td><td><code>{html.escape(str(v))}</code></td></tr>" for k, v in pairs.items())
    return f"<table>{''.join(lines)}</table>"


def bars(axes: Axes, theme: Theme, scores: Scores) -> None:
    for k, (kind, label) in enumerate((("linear", "linear probe"), ("knn", "20-NN"))):
        values = [100 * score[kind] for score in scores.values()]
        heights = [i + 0.2 * (2 * k - 1) for i in range(len(values))]
        drawn = axes.barh(heights, values, 0.36, color=theme.colours[k], label=label)
        axes.bar_label(drawn, fmt="%.0f", padding=3, color=theme.ink, fontsize=9)
    axes.set_yticks(range(len(scores)), list(scores))
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.axvline(10, color=theme.ink, linewidth=0.8, linestyle=":")
    axes.set_xlabel("accuracy, %  (dotted: a guess)", color=theme.ink)
    axes.legend(frameon=False, labelcolor=theme.ink, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def curves(axes: Axes, theme: Theme, rows: list[Row]) -> None:
    steps = [row["step"] for row in rows]
    for name, colour in zip(("invariance", "shape", "scale", "center"), theme.colours, strict=True):
        axes.plot(steps, [row[name] for row in rows], color=colour, linewidth=1.2, label=name)
    axes.set_yscale("log")
    axes.set_ylabel("weighted term", color=theme.ink)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("step", color=theme.ink)
    axes.legend(frameon=False, labelcolor=theme.ink, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)


def plain(axes: Axes, theme: Theme) -> None:
    axes.patch.set_alpha(0)
    axes.tick_params(colors=theme.ink, which="both")
    axes.grid(axis="both", color=theme.faint, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.ink)


def shown(run: Run) -> UInt8[Tensor, "h w 4"]:
    n = len(run.views[0])
    views = [(255 * view).round().clamp(0, 255).to(torch.uint8) for view in run.views]
    return montage(torch.stack([run.train.images[:n], *views]), torch.zeros(3, n, dtype=torch.bool), gap=1)


def neighbours(run: Run, queries: int = 8, k: int = 6) -> UInt8[Tensor, "h w 4"]:
    """Column blocks: the queries, their neighbours by pixels, their neighbours by features."""
    query = run.test.images[:queries, None]
    blocks = [montage(query, torch.zeros(query.shape[:2], dtype=torch.bool))]
    for train, test in ((run.train.images.flatten(1) / 255, run.test.images.flatten(1) / 255), run.features):
        nearest = (F.normalize(test[:queries], dim=1) @ F.normalize(train, dim=1).T).topk(k).indices
        same = run.train.labels[nearest] == run.test.labels[:queries, None]
        blocks += [blocks[0].new_zeros(len(blocks[0]), 10, 4), montage(run.train.images[nearest], same)]
    return torch.cat(blocks, 1)


def montage(
    images: UInt8[Tensor, "rows columns 3 h w"], framed: Bool[Tensor, "rows columns"], *, gap: int = 2
) -> UInt8[Tensor, "h2 w2 4"]:
    """Images in rows and columns on a transparent ground, some in a frame as wide as the gap."""
    opaque = torch.cat([images, torch.full_like(images[:, :, :1], 255)], 2)
    tiles = F.pad(opaque, [2 * gap] * 4)
    frame = F.pad(torch.zeros_like(opaque, dtype=torch.bool), [gap] * 4, value=True)
    frame = F.pad(frame, [gap] * 4) & framed[:, :, None, None, None]
    green = torch.tensor([60, 175, 100, 255], dtype=torch.uint8).view(4, 1, 1)
    tiles = torch.where(frame, green, tiles)
    return tiles.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1).contiguous()


def png(pixels: UInt8[Tensor, "h w 4"]) -> str:
    buffer = io.BytesIO()
    imsave(buffer, pixels.numpy(), format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def chart(draw: Callable[[Axes, Theme], None], alt: str, *, height: float) -> str:
    """`draw(axes, theme)` twice, for the two kinds of screen."""
    sources = []
    for theme in (LIGHT, DARK):
        figure = Figure(figsize=(8, height), dpi=160, layout="constrained")
        axes = figure.subplots()
        draw(axes, theme)
        plain(axes, theme)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", transparent=True)
        sources.append("data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode())
    light, dark = sources
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{html.escape(alt)}"></picture>'
    )
