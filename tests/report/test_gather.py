"""What is gathered is what the run has, and what it has not is said."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.report.conftest import CLASSES, DOMAINS
from torch import nn

from reglet.backbones.convnet import ConvNet
from reglet.cli import main
from reglet.data import load_pair
from reglet.engine.feed import ImageFeed
from reglet.engine.run_folder import RunError
from reglet.engine.settings import Settings
from reglet.export import load_encoder, preprocessing
from reglet.latent import LatentDR
from reglet.methods.domains import Domains, OnUnion
from reglet.report.gather import Missing, RunData, Source, gather
from reglet.report.gather.embedding import principal, some
from reglet.report.gather.geometry import shape
from reglet.report.gather.layers import finest, layers_of
from reglet.report.gather.source import open_source
from reglet.report.gather.training import curve, training
from reglet.train import fit
from reglet.views import policy

PARTS = ("training", "verdict", "probes", "cost", "embedding", "geometry", "maps", "equivariance", "robustness")


@pytest.fixture(scope="module")
def found(run: Path) -> RunData:
    return gather(run, robust_images=8)


def gaps(found: RunData) -> set[str]:
    return {name for name in PARTS if isinstance(getattr(found, name), Missing)}


def test_a_finished_run_has_everything(found: RunData) -> None:
    assert gaps(found) == set()
    assert found.latents is None
    assert found.training.finished
    assert list(found.training.terms) == ["loss", "scale", "shape", "center", "invariance"]
    assert found.training.lr.steps == list(range(1, 7))  # 56 images in batches of 16, twice


def test_probes_are_those_of_reglet_eval(found: RunData, run: Path, tmp_path: Path) -> None:
    assert main(["eval", str(run), f"out={tmp_path / 'eval.json'}"]) == 0
    stored = json.loads((tmp_path / "eval.json").read_text())
    for name, row in stored["probes"].items():
        assert found.probes.scores[name]["accuracy"] == row["accuracy"]
        assert found.probes.scores[name]["by_domain"] == row["by_domain"]
        assert float(found.probes.right[name].double().mean()) == pytest.approx(row["accuracy"])
    assert found.probes.fingerprint == stored["data"]["test"]["fingerprint"]


def test_the_map_shows_test_images_with_their_names(found: RunData, photos: Path) -> None:
    _, test = load_pair(str(photos))
    shown = found.embedding
    assert torch.equal(shown.pictures, test.batch(torch.arange(36)))
    assert shown.groups["class"] == (test.labels.tolist(), CLASSES)
    assert shown.groups["domain"] == (test.domain.tolist(), DOMAINS)
    assert shown.files[0] == f"{DOMAINS[0]}/{CLASSES[0]}/it's <0>.png"
    assert set(shown.maps) == {"t-SNE", "PCA"}
    assert not (shown.neighbours == torch.arange(36)[:, None]).any()


def test_neighbours_and_places_are_of_the_run_s_encoder(found: RunData, run: Path) -> None:
    encoder, preprocess, _ = load_encoder(run)
    with torch.no_grad():
        x = encoder(preprocess(found.embedding.pictures))
    unit = nn.functional.normalize(x, dim=1)
    similarity = (unit @ unit.T).fill_diagonal_(-2)
    assert torch.equal(similarity.argmax(1), found.embedding.neighbours[:, 0])
    apart = torch.pdist(found.embedding.maps["PCA"])
    v = torch.linalg.svd(x - x.mean(0), full_matrices=False).Vh
    torch.testing.assert_close(apart, torch.pdist((x - x.mean(0)) @ v[:2].T), rtol=1e-4, atol=1e-4)


def test_few_points_are_the_same_points_each_time(photos: Path) -> None:
    _, test = load_pair(str(photos))
    assert torch.equal(some(test, 10), some(test, 10))
    assert len(some(test, 10).unique()) == 10


def test_principal_components_of_one_feature() -> None:
    assert principal(torch.arange(4.0)[:, None]).tolist() == [[-1.5, 0], [-0.5, 0], [0.5, 0], [1.5, 0]]


def test_geometry_stands_beside_the_untrained_network(found: RunData, run: Path) -> None:
    source = open_source(run)
    assert found.geometry.trained.rank != found.geometry.untrained.rank
    # what a run of this seed starts from, not some random network
    from reglet.engine.build import build_parts
    from reglet.engine.run_folder import read_run

    first = build_parts(read_run(run)[0]).method.backbone.state_dict()
    assert all(torch.equal(value, first[key]) for key, value in source.untrained.state_dict().items())


def test_shape_of_known_features() -> None:
    x = torch.tensor([[3.0, 0, 1], [-3, 0, 1], [0, 1, 1], [0, -1, 1]])
    found = shape(x, torch.stack([x, x]))
    assert found.explained == pytest.approx([0.9, 1, 1])
    assert found.eigenvalues == pytest.approx([2.7, 0.3, 0])
    assert found.alignment == 0


def test_a_run_cut_half_way(run: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(run, cut)
    for name in ("encoder.safetensors", "card.json"):
        (cut / name).unlink()
    lines = (cut / "metrics.jsonl").read_text().splitlines()
    (cut / "metrics.jsonl").write_text("\n".join(lines[:4]) + '\n{"step": 4, "lo')
    found = gather(cut, robust_images=0)
    assert gaps(found) == {"robustness"}
    assert not found.training.finished
    assert found.training.last_step == 3
    whole = gather(run, robust_images=0)
    assert torch.equal(found.embedding.neighbours, whole.embedding.neighbours), "its weights are the checkpoint's"


def test_a_run_without_weights(run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    found = gather(tmp_path)
    assert gaps(found) == set(PARTS) - {"cost"}
    assert "no checkpoint yet" in found.embedding.why
    assert "metrics.jsonl" in found.training.why
    assert found.repeat.command.startswith("reglet pretrain ")


def test_no_labels(unlabelled: Path) -> None:
    found = gather(unlabelled)
    assert gaps(found) == {"probes", "robustness"}
    assert "has no labels" in found.probes.why
    assert found.embedding.groups == {}


def test_an_exported_encoder_needs_data(run: Path, photos: Path, tmp_path: Path) -> None:
    for name in ("encoder.safetensors", "card.json"):
        shutil.copy(run / name, tmp_path / name)
    assert "give data=" in gather(tmp_path).embedding.why
    found = gather(tmp_path, data=str(photos), robust_images=0)
    assert gaps(found) == {"training", "robustness"}
    assert found.repeat.command is None


def test_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no directory of a run"):
        gather(tmp_path)
    with pytest.raises(RunError, match="there is no directory"):
        gather(tmp_path / "nowhere")


def test_a_run_made_in_python_with_latentdr(photos: Path, tmp_path: Path) -> None:
    train, test = load_pair(str(photos))
    backbone = ConvNet(widths=(4, 8))
    method = Domains(backbone, OnUnion(LatentDR(dim=8, dropout=0.0)), classes=2)
    views = policy("supervised", size=16)
    settings = Settings(out=str(tmp_path / "dr"), epochs=1, batch=16, accelerator="cpu", log_every=1)
    fit(method, ImageFeed(train, views, batch=16), settings, shown=False)
    assert "was made in Python" in gather(tmp_path / "dr").probes.why

    source = Source(backbone.eval(), preprocessing(16), train, test, method=method.eval(), policy=views)
    found = gather(tmp_path / "dr", source=source, robust_images=0)
    assert gaps(found) == {"robustness"}
    assert found.geometry.trained.alignment is None  # one view: nothing to align
    assert list(found.latents.maps["PCA"]) == ["latent", "degraded", "restored"]
    dr = method.loss.loss
    with torch.no_grad():
        z = source.features(test)
        z_d = dr.degrade(z)
        together = torch.cat([z, z_d, dr.restore(z_d, z)])
    expected = principal(together).split(len(z))
    for got, places in zip(found.latents.maps["PCA"].values(), expected, strict=True):
        torch.testing.assert_close(got, places)


def test_a_network_without_maps_is_said_to_have_none(run: Path) -> None:
    source = replace(open_source(run), encoder=nn.Sequential(nn.Flatten(), nn.Linear(768, 8)), method=None)
    found = gather(run, source=source, robust_images=0)
    assert gaps(found) == {"maps", "equivariance", "robustness"}
    assert "no blocks that are known by name" in found.maps.why


def test_damaged_weights_leave_a_verdict(run: Path) -> None:
    source = open_source(run)
    next(source.encoder.parameters()).data.fill_(torch.nan)
    found = gather(run, source=source)
    assert "not finite" in found.probes.why
    assert not isinstance(found.training, Missing)


def test_layers_are_few_and_end_with_the_last() -> None:
    from reglet.backbones import build

    vit = build("vit_tiny", size=16)
    seen = layers_of(vit)(torch.zeros(2, 3, 16, 16))
    assert list(seen) == [f"blocks.{i}" for i in (1, 3, 5, 7, 9, 11)]
    assert seen["blocks.11"].shape == (2, 192, 4, 4)


def test_a_finer_layer_is_shown_beside_a_coarse_last_one() -> None:
    maps = {"a": torch.zeros(1, 3, 16, 16), "b": torch.zeros(1, 3, 8, 8), "c": torch.zeros(1, 3, 4, 4)}
    assert finest(maps) == ["b", "c"]
    assert finest({"a": maps["a"]}) == ["a"]
    assert finest({"c": maps["c"]}) == ["c"]


def test_spikes_and_gaps_in_the_curves(tmp_path: Path) -> None:
    rows = [{"step": s, "loss": 1.0, "lr": 0.1, "epoch": s / 10, "grad_norm": 1.0, "rank": 5.0} for s in range(1, 11)]
    rows[6]["grad_norm"], rows[8]["loss"] = 50.0, float("nan")
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = training(tmp_path, {"epochs": 3})
    assert found.spikes == [6]
    assert found.terms["loss"].values[8] is None
    assert found.rank == curve(rows, "rank")
    assert list(found.terms) == ["loss"]  # norms, rates and ranks are no terms of the loss
    assert found.epochs == (1.0, 3)


def test_stored_robustness_is_taken_while_it_is_fresh(run: Path, tmp_path: Path) -> None:
    import os

    kept = tmp_path / "run"
    shutil.copytree(run, kept)
    stored = {"images": 36, "corruptions": {"clean": 0.5, "severities": [1, 2], "accuracy": {"fog": [0.25, 0.75]}}}
    (kept / "robust.json").write_text(json.dumps(stored))
    found = gather(kept).robustness
    assert (found.mean, found.coarse, found.images) == (0.5, False, 36)
    os.utime(kept / "robust.json", (1, 1))  # older than the weights: of another training
    assert gather(kept, robust_images=4).robustness.coarse
