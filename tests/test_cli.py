"""The command line: what a person types, and what they are told."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from reglet.cli import main
from reglet.engine.config import Config, from_flat, parse
from reglet.engine.run_folder import read_config


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    images = rng.integers(0, 100, (80, 16, 16, 3), dtype=np.uint8)
    images[np.arange(80), ..., 0] += (120 * labels[:, None, None]).astype(np.uint8)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    domain, split = np.array(["a", "b", "c", "d"])[np.arange(80) // 20], np.array(["train"] * 60 + ["test"] * 20)
    np.savez(path, images=images, labels=labels, domain=domain, split=split)
    return path


def words(data: Path, out: Path, *more: str) -> list[str]:
    small = ["model=convnet", "projector=16-8", "epochs=2", "batch=20", "accelerator=cpu"]
    return ["pretrain", f"data={data}", *small, f"out={out}", *more]


def test_pretrain_repeat_resume_embed_export(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "runs" / "a"
    assert main(words(data, run, "method=visreg", "loss.slices=32", "views.n_global=2")) == 0
    said = capsys.readouterr()
    assert "kNN" in said.err
    assert "encoder.load_state_dict" in said.out
    config = json.loads((run / "config.json").read_text())
    assert (config["loss.slices"], config["epochs"], config["seed"], config["lr"]) == (32, 2, 0, 0.001)
    assert config["versions"]["torch"] == torch.__version__
    assert config["resolved"]["size"] == 16

    assert main(["pretrain", str(run / "config.json")]) == 0
    again = tmp_path / "runs" / "a-2"
    first, second = (load_file(folder / "encoder.safetensors") for folder in (run, again))
    assert all(torch.equal(first[key], second[key]) for key in first)

    assert main(["pretrain", f"out={run}", "resume=true"]) == 0
    assert main(["embed", f"run={run}", f"data={data}", "split=test", f"out={tmp_path / 'x.npz'}"]) == 0
    with np.load(tmp_path / "x.npz", allow_pickle=False) as found:
        assert found["features"].shape == (20, 128)
        assert found["labels"].tolist() == [0, 1] * 10
        assert found["domain"].tolist() == [3] * 20
    _evaluated(run, data, capsys)
    assert main(["export", f"run={run}", f"out={tmp_path / 'b'}"]) == 0
    third = load_file(tmp_path / "b" / "encoder.safetensors")
    assert all(torch.equal(first[key], third[key]) for key in first)
    capsys.readouterr()


def _evaluated(run: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["eval", str(run)]) == 0
    own = json.loads((run / "eval.json").read_text())
    assert own["data"]["train"]["name"] == "small/train"  # the run's own data
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert max(len(line) for line in said.splitlines() if str(run) not in line) <= 80  # pytest's paths are long
    rows = [line.split() for line in said.splitlines()]
    assert ["kNN", f"{100 * own['probes']['knn']['accuracy']:.1f}"] in [row[:2] for row in rows]
    assert ["linear", "probe", f"{100 * own['probes']['linear']['accuracy']:.1f}"] in [row[:3] for row in rows]
    assert ["RankMe", f"{own['representation']['rankme']:.1f}", "of", "128"] in rows
    assert "eval.json has every number." in said
    every = ["probes=knn,linear,exact,ridge,few", f"data={data}", "train=test", "test=train", "seed=1", "batch=9"]
    assert main(["eval", f"run={run}", *every, f"out={run / 'other.json'}"]) == 0
    other = json.loads((run / "other.json").read_text())
    assert list(other["probes"]) == ["knn", "linear", "exact", "ridge", "few"]
    assert other["data"]["train"]["images"] == 20
    assert max(len(line) for line in capsys.readouterr().out.splitlines() if str(run) not in line) <= 80
    assert json.loads((run / "eval.json").read_text()) == own


def test_resume_and_init_from_cannot_be_confused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "a"
    assert main(words(data, run, "method=barlow")) == 0

    def refused(*given: str, says: str) -> None:
        capsys.readouterr()
        assert main(list(given)) == 2
        assert says in capsys.readouterr().err

    refused(*words(data, run, "method=barlow"), says="holds a run already (checkpoint of step 6)")
    refused("pretrain", f"out={run}", "resume=true", "lr=0.5", says="lr was 0.001 and is 0.5")
    refused("pretrain", f"out={run}", "resume=true", f"init_from={run}", says="give one")
    refused("pretrain", f"out={tmp_path / 'none'}", "resume=true", says="there is no run to resume")
    refused("pretrain", str(run / "config.json"), "resume=true", says="repeats a run from its start")
    refused("train", f"out={run}", "resume=true", says="made by reglet pretrain")

    new = words(data, tmp_path / "b", "method=vicreg", f"init_from={run}", "lr=0", "knn_every=0")
    assert main(new) == 0
    old, started = (load_file(folder / "encoder.safetensors") for folder in (run, tmp_path / "b"))
    assert torch.equal(old["stages.0.0.weight"], started["stages.0.0.weight"])  # lr 0: as they were given
    wrong = [w.replace("convnet", "resnet8") for w in words(data, tmp_path / "c", f"init_from={run}")]
    refused(*wrong, says="are of another architecture")


def test_train_with_few_labels_leaving_a_domain_out(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["train", f"data={data}", "model=convnet", "epochs=6", "batch=10", "accelerator=cpu", "labels=0.5"]
    assert main([*given, "leave_out=b", "method.label_smoothing=0.1", f"out={tmp_path / 'a'}"]) == 0
    assert "accuracy" in capsys.readouterr().out
    card = json.loads((tmp_path / "a" / "card.json").read_text())
    assert card["metrics"]["accuracy"] > 0.8  # two classes by colour
    assert card["data"]["images"] == 20  # half of the 40 that are left without b
    assert card["data"]["name"].startswith("small/train/without-b")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["pretrian"], "no command 'pretrian'. Did you mean pretrain?"),
        (["pretrain", "epoch=3"], "unknown key 'epoch'. Did you mean epochs=?"),
        (["pretrain", "epochs=three"], "epochs is a whole number, got 'three'"),
        (["pretrain", "compile=maybe"], "compile is true or false"),
        (["pretrain", "epochs=1", "epochs=2"], "epochs= is given twice"),
        (["pretrain", "precision=8"], "precision is one of 32-true"),
        (["pretrain", "data=nowhere/"], "there are no data at 'nowhere/'"),
        (["pretrain", "model=vit_tinny"], "Did you mean 'vit_tiny'?"),
        (["pretrain", "method=visregg"], "no method 'visregg'. Did you mean 'visreg'?"),
        (["pretrain", "loss=barlo"], "no loss 'barlo'. Did you mean 'barlow'?"),
        (["pretrain", "loss.slice=3"], "unknown key 'loss.slice'. Did you mean loss.slices=?"),
        (["pretrain", "los.slices=3"], "unknown key 'los'. Did you mean loss=?"),
        (["pretrain", "method=dino", "loss=barlow"], "a loss and a projector of its own"),
        (["pretrain", "leave_out=dots"], "the domains are plain, stripes"),
        (["eval"], "reglet eval needs an encoder"),
        (["eval", "a", "run=b"], "there is no directory a"),
        (["eval", "nowhere"], "there is no directory nowhere"),
        (["eval", "run=nowhere", "probe=knn"], "unknown key 'probe'. Did you mean probes=?"),
        (["eval", "nowhere", "batch=0"], "batch is a whole number, at least 1; got '0'"),
        (["eval", "nowhere", "seed=x"], "seed is a whole number, at least 0; got 'x'"),
        (["embed", "run=x"], "reglet embed needs out="),
        (["embed", "run=nowhere", "out=x.npz"], "there is no directory nowhere"),
        (["embed", "run=nowhere", "out=x.txt"], "ends in .csv, .npz or .parquet, got x.txt"),
        (["export", "runs=x"], "unknown key 'runs'. Did you mean run=?"),
        (["list", "nets"], "reglet list knows data, models"),
        (["embed", "run=x", "out=x.npz", "batch=abc"], "batch is a whole number, at least 1; got 'abc'"),
        (["robust", "x", "severities=12"], "severities are numbers from 1 to 5"),
        (["pretrain", "method=moco", "method.temperature=warm"], "method.temperature is a number; got 'warm'"),
        (["pretrain", "method=dino", "method.temperature=0.04"], "is 2 numbers with a comma between them; got 0.04"),
        (["pretrain", "loss.slices=many"], "loss.slices is a whole number; got 'many'"),
        (["pretrain", "loss.detach=3"], "loss.detach is true or false; got 3"),
        (["pretrain", "method=vicreg", "loss.variant=x"], "loss.variant is one of official, paper, solo, visreg; got"),
        (["pretrain", "method.projector=3"], "method.projector is none; got 3"),
        (["pretrain", "equivariant=ser", "equivariant.weight=x"], "weight is a number, or cosine"),
        (["pretrain", "equivariant=ser", "equivariant.turns=x"], "equivariant.turns is true or false; got 'x'"),
        (["pretrain", "projector=wide"], "projector is widths such as 512-512-128, got 'wide'"),
        (["train", "labels=few"], "labels is a share such as 0.1 or a number such as 1000, got 'few'"),
    ],
)
def test_mistakes_are_explained_without_a_traceback(
    given: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(given) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert "\nreglet: " in f"\n{said.err}"  # on a slow machine a line before it says that the command starts
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []  # a mistake leaves nothing behind


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_an_accelerator_that_is_not_there(
    name: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["pretrain", f"data={data}", "epochs=1", "batch=16", f"out={out}", f"accelerator={name}"]) == 2
    assert f"{name} was asked for, with 1 devices, and torch finds 0 here" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("error", [TypeError, KeyError, IndexError, AssertionError])
def test_a_fault_of_ours_is_not_called_a_mistake_of_the_user(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(words: list[str]) -> int:
        raise error("'<' not supported")

    monkeypatch.setattr("reglet.cli.eval.evaluate", broken)
    with pytest.raises(error):
        main(["eval", "runs/a"])


def test_a_network_of_the_wrong_kind_is_explained(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    ask = ["pretrain", f"data={data}", "epochs=1", "batch=16", f"out={out}", "projector=8-8", "loss.slices=8"]
    assert main([*ask, "accelerator=cpu"]) == 0
    assert main(["eval", str(out), f"data={data}", "blocks=4"]) == 2
    assert "has no `blocks` and `norm` of a vision transformer" in capsys.readouterr().err
    assert main(["eval", str(out), f"data={data}", "accelerator=gpu"]) == 2
    assert "accelerator is one of auto, cpu, cuda, mps; got 'gpu'" in capsys.readouterr().err


def test_arguments_of_several_values() -> None:
    from reglet.engine.build import build_parts

    given = {"method.temperature": "0.05,0.06", "method.out_dim": 16}
    config = Config(data="digits", model="convnet", method="dino", out="x", options=given)
    assert build_parts(config).method.temperature == (0.05, 0.06)
    config = Config(data="digits", model="convnet", method="smi", out="x", options={"loss.pairs": "11,12"})
    assert tuple(build_parts(config).method.loss.pairs) == ("11", "12")
    config = Config(data="digits", model="convnet", method="smi", out="x", options={"loss.pairs": 12})
    assert tuple(build_parts(config).method.loss.pairs) == ("12",)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "reglet pretrain data=photos/" in capsys.readouterr().out
    for command in ("pretrain", "train", "eval", "embed", "export", "list"):
        assert main([command, "--help"]) == 0
        assert command in capsys.readouterr().out
    main(["pretrain", "--help"])
    said = capsys.readouterr().out
    for key in ("data", "model", "method", "loss", "out", "epochs", "batch", "seed", "devices", "precision", "resume"):
        assert f"\n  {key}=" in said
    assert max(map(len, said.splitlines())) <= 132


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("digits", "vit_tiny", "visreg", "dino", "barlow", "simclr"))
    assert main(["list", "losses"]) == 0
    assert "dino" not in capsys.readouterr().out


def test_every_listed_method_is_built(data: Path) -> None:
    from reglet.engine.build import LOSSES, METHODS, build_parts

    for name in (*LOSSES, *METHODS):
        options = {"method.out_dim": 64} if name == "dino" else {}
        model = "vit_mini" if name == "jepa" else "convnet"  # the one that shows a network a part of the patches
        parts = build_parts(Config(data=str(data), model=model, method=name, out="x", options=options))
        draws = parts.policy.draw(4, torch.Generator().manual_seed(0))
        views = parts.policy.apply(parts.images.batch(torch.arange(4)), draws)
        assert len(views) >= (1 if name == "jepa" else 2)


def test_local_views_are_made_of_whole_patches(tmp_path: Path) -> None:
    from reglet.engine.build import build_parts

    np.savez(tmp_path / "x.npz", images=np.zeros((4, 128, 128, 3), np.uint8))
    parts = build_parts(Config(data=str(tmp_path / "x.npz"), model="vit_mini", method="visreg", out="x"))
    assert {view.size % 16 for view in parts.policy.views} == {0}
    assert {view.size for view in parts.policy.views} == {128, 48}


def test_flat_and_back(tmp_path: Path) -> None:
    config = Config(epochs=3, options={"loss.slices": 7})
    assert from_flat(config.flat()) == config
    assert (parse("lr", "1e-3"), parse("resume", "yes"), parse("loss.slices", "7")) == (0.001, True, 7)
    assert parse("model.cls_layer", "none") is None
    (tmp_path / "config.json").write_text(json.dumps({**config.flat(), "versions": {}}))
    assert from_flat(read_config(tmp_path / "config.json")) == config
