"""Every figure is one that Plotly takes, and shows the numbers it was given."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
import torch
from tests.report.made import cloud

from reglet.report.across import Difference
from reglet.report.figures import across, embedding, geometry, robustness, training
from reglet.report.figures.style import colour, plain, symbol
from reglet.report.gather import RunData, gather
from reglet.report.gather.embedding import Embedding, Latents
from reglet.report.gather.training import Curve, Look, Training
from reglet.report.reference import healthy


@pytest.fixture(scope="module")
def found(run: Path) -> RunData:
    return gather(run, robust_images=8)


def drawable(figure: dict[str, Any]) -> None:
    """With a colour in the place of each variable of the style sheet, Plotly's own check passes."""
    text = json.dumps(figure, allow_nan=False)
    for i in range(8):
        text = text.replace(f"var(--c{i})", "#123456")
    for name in ("ink", "soft", "line", "card", "ground", "outline"):
        text = text.replace(f"var(--{name})", "#123456")
    assert "var(" not in text
    go.Figure(json.loads(text))


def curves(**given: Curve) -> Training:
    none = Curve([], [])
    parts = {"lr": none, "knn": none, "grad_norm": none, "rank": none} | given
    return Training({"loss": Curve([1, 2], [3.0, None])}, **parts, spikes=[1], epochs=(1.0, 1))


def test_all_figures_of_a_run(found: RunData) -> None:
    runs = {found.name: found.training}
    shapes = {found.name: found.geometry}
    figures = [training.terms(runs), training.rate(runs), training.online_knn(runs)]
    figures += [draw(shapes, healthy()) for draw in (geometry.spectrum, geometry.explained, geometry.deviations)]
    figures += [geometry.alignment(shapes, healthy()), robustness.by_layer(found.equivariance)]
    figures += [robustness.by_corruption(found.robustness), robustness.by_severity({found.name: found.robustness})]
    figures += embedding.variants(found.embedding).values()
    figures += [across.differences([Difference("a", "b", "linear", 10, 0.1, -0.1, 0.3)])]
    for figure in figures:
        drawable(figure)
    assert "<i>" not in json.dumps(figures)  # names of runs are text


def test_the_doctors_time_line() -> None:
    """A strip from look to look, and the first alarm by name; nothing where nobody watched."""
    looks = (Look(100, "healthy"), Look(125, "suspicion"), Look(130, "a <b>"), Look(155, "other"))
    steps = Curve([1, 180], [1.0, 2.0])
    runs = {"r": replace(curves(lr=steps), looks=looks), "s": curves()}
    figure = training.watched(runs)
    assert figure is not None
    drawable(figure)
    pieces = {trace["name"]: list(zip(trace["base"], trace["x"], strict=True)) for trace in figure["data"]}
    assert pieces == {"healthy": [(100, 25)], "suspicion": [(125, 5)], "alarm": [(130, 25), (155, 25)]}
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["a &lt;b&gt;, step 130"]
    assert training.watched({"s": curves()}) is None


def test_terms_over_steps() -> None:
    (loss,) = training.terms({"a": curves()})["data"]
    assert (loss["x"], loss["y"], loss["name"]) == ([1, 2], [3.0, None], "loss")
    names = [trace["name"] for trace in training.terms({"a": curves(), "b": curves()})["data"]]
    assert names == ["loss, a", "loss, b"]


def test_spikes_are_marked_where_they_are() -> None:
    figure = training.gradient({"a": curves(grad_norm=Curve([10, 20, 30], [1.0, 9.0, 1.0]))})
    drawable(figure)
    norm, spike = figure["data"]
    assert (spike["x"], spike["y"]) == ([20], [9.0])
    assert norm["y"] == [1.0, 9.0, 1.0]
    assert training.gradient({"a": curves()}) is None
    drawable(training.rank({"a": curves(rank=Curve([1], [2.0]))}))


@pytest.mark.parametrize(("values", "kind"), [([2.0, 9.0], None), ([0.2, 9.0], "log"), ([0.0, 9.0], None)])
def test_an_axis_is_logarithmic_where_that_has_numbers_on_it(values: list[float], kind: str | None) -> None:
    figure = training.gradient({"a": curves(grad_norm=Curve([10, 20], values))})
    assert figure is not None
    assert figure["layout"]["yaxis"].get("type") == kind


def test_every_point_is_on_the_map_once_in_each_variant() -> None:
    made = cloud(50, classes=3)
    drawn = embedding.variants(made)
    assert set(drawn) == {"t-SNE/class", "PCA/class"}
    for key, figure in drawn.items():
        places = made.maps[key.split("/")[0]]
        seen = {}
        for c, trace in enumerate(figure["data"]):
            assert trace["name"] == str(c)
            for i, x, y in zip(trace["customdata"], trace["x"], trace["y"], strict=True):
                assert i % 3 == c
                seen[i] = (x, y)
        assert sorted(seen) == list(range(50))
        assert torch.allclose(torch.tensor([seen[i] for i in range(50)]), places, rtol=1e-3)


def test_many_points_are_drawn_by_webgl_and_few_are_not() -> None:
    kinds = {n: embedding.variants(cloud(n))["PCA/class"]["data"][0]["type"] for n in (1500, 1501)}
    assert kinds == {1500: "scatter", 1501: "scattergl"}


def test_without_labels_there_is_one_grey_cloud() -> None:
    made = cloud(10)
    bare = Embedding(made.maps, {}, made.neighbours, made.pictures, None, "", 10, [])
    drawn = embedding.variants(bare)
    assert set(drawn) == {"t-SNE/none", "PCA/none"}
    (trace,) = drawn["PCA/none"]["data"]
    assert trace["customdata"] == list(range(10))


def test_latents_are_joined_to_where_they_go() -> None:
    z, z_d, z_r = torch.tensor([[[0.0, 0]], [[1.0, 2]], [[0.5, 1]]])
    (figure,) = embedding.latent_variants(
        Latents({"PCA": {"latent": z, "degraded": z_d, "restored": z_r}}, None, None)
    ).values()
    drawable(figure)
    lines, *kinds = figure["data"]
    assert (lines["x"], lines["y"]) == ([0.0, 1.0, 0.5, None], [0.0, 2.0, 1.0, None])
    assert [(t["name"], t["x"]) for t in kinds] == [("latent", [0.0]), ("degraded", [1.0]), ("restored", [0.5])]


def test_class_colours_repeat_with_another_symbol() -> None:
    looks = {(colour(i + 1), symbol(i)) for i in range(64)}
    assert len(looks) == 64


def test_names_are_text_to_plotly() -> None:
    assert plain("<a href='x'>&lt;$y$") == "&lt;a href='x'&gt;&amp;lt;&#36;y&#36;"


def test_the_reference_is_of_healthy_runs() -> None:
    reference = healthy()
    assert reference.explained[-1] == pytest.approx(1, abs=1e-3)
    assert reference.eigenvalues == sorted(reference.eigenvalues, reverse=True)
    assert all("seed" in command for command in reference.commands[1:])
    assert -4 < reference.uniformity < -0.25  # 0 is one point; the stored runs have -0.45
    assert 0 < reference.alignment < 1
