"""Anomalies: metrics against hand-worked cases and scikit-learn, windows, every layout, and every bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.tasks.trained import train
from torch import Tensor, nn

from reglet.probes.metrics import multilabel_auroc
from reglet.tasks import named
from reglet.tasks.anomaly import TASK, AnomalyConfig, Machine, Machines, adjusted, detection, threshold
from reglet.tasks.anomaly.config import NETWORKS
from reglet.tasks.anomaly.machines import cut, point_errors, standardized, tiles, training_starts
from reglet.tasks.anomaly.task import judge
from reglet.tasks.run import run

SHARED = Path(__file__).parents[3] / "shared/data"


def bits(word: str) -> Tensor:
    return torch.tensor([c == "1" for c in word])


# metrics


def test_point_adjustment_by_hand() -> None:
    labels = bits("0111001111000110")
    predicted = bits("1010000000010100")
    # Segments 1-3, 6-9 and 13-14: the first is hit at 2, the second missed, the third hit at 13.  False: 0 and 11.
    raised = adjusted(predicted, labels)
    assert torch.equal(raised, bits("1111000000010110"))
    plain, whole = detection(predicted, labels), detection(raised, labels)
    assert plain == pytest.approx((2 / 4, 2 / 9, 2 * (1 / 2) * (2 / 9) / (1 / 2 + 2 / 9)))
    assert whole == pytest.approx((5 / 7, 5 / 9, 2 * (5 / 7) * (5 / 9) / (5 / 7 + 5 / 9)))


def test_adjustment_at_the_ends_and_of_nothing() -> None:
    assert torch.equal(adjusted(bits("1001"), bits("1111")), bits("1111"))
    assert torch.equal(adjusted(bits("100001"), bits("110011")), bits("110011"))
    assert torch.equal(adjusted(bits("0000"), bits("0110")), bits("0000"))
    assert torch.equal(adjusted(bits("0101"), bits("0000")), bits("0101"))


def test_adjustment_is_that_of_the_published_loop() -> None:
    """Segment by segment, as Xu et al. describe it."""
    g = torch.Generator().manual_seed(0)
    for _ in range(30):
        labels = (torch.rand(60, generator=g) < 0.4).repeat_interleave(3)
        predicted = torch.rand(180, generator=g) < 0.1
        expected, t = predicted.clone(), 0
        while t < 180:
            end = t
            while end < 180 and labels[end]:
                end += 1
            if predicted[t:end].any():
                expected[t:end] = True
            t = max(end, t + 1)
        assert torch.equal(adjusted(predicted, labels), expected)


@pytest.mark.parametrize("above", [0.0, 0.1, 1 / 3, 0.5, 0.9, 1.0])
def test_a_share_of_a_segment_by_the_published_rule(above: float) -> None:
    """Kim et al.: a segment whose share of found points exceeds K is found as a whole."""
    g = torch.Generator().manual_seed(0)
    for _ in range(10):
        labels = (torch.rand(60, generator=g) < 0.4).repeat_interleave(3)
        predicted = torch.rand(180, generator=g) < 0.4
        expected, t = predicted.clone(), 0
        while t < 180:
            end = t
            while end < 180 and labels[end]:
                end += 1
            if end > t and predicted[t:end].sum() > above * (end - t):
                expected[t:end] = True
            t = max(end, t + 1)
        assert torch.equal(adjusted(predicted, labels, above=above), expected)
        if above == 1:
            assert torch.equal(expected, predicted), "nothing is adjusted"


def test_the_area_by_hand() -> None:
    """Three of four points of the only segment are found, and one beside it: F1 is 8 / 9 up to K = 0.7, then 6 / 8."""
    machine = Machine("m", torch.zeros(9, 1), torch.zeros(9, 1), bits("001111000"))
    found = judge(torch.zeros(91), [bits("101110000").float()], Machines((machine,)), ratio=4.0)
    assert found["adjusted_f1"] == pytest.approx(8 / 9)
    assert found["f1"] == pytest.approx(6 / 8)
    assert found["f1_area"] == pytest.approx(0.7 * 8 / 9 + 0.1 * (8 / 9 + 6 / 8) / 2 + 0.2 * 6 / 8)


def test_nothing_found_scores_zero() -> None:
    assert detection(bits("0000"), bits("0110")) == (0, 0, 0)
    assert detection(bits("1001"), bits("0110")) == (0, 0, 0)


def test_scores_against_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    labels = rng.random(500) < 0.1
    scores = np.round(rng.normal(size=500) + labels, 1)  # with ties
    predicted = scores > 1
    found = detection(torch.from_numpy(predicted), torch.from_numpy(labels))
    expected = metrics.precision_recall_fscore_support(labels, predicted, average="binary")[:3]
    assert found == pytest.approx(expected)
    machine = Machine("m", torch.zeros(9, 1), torch.zeros(500, 1), torch.from_numpy(labels))
    judged = judge(torch.zeros(9), [torch.from_numpy(scores)], Machines((machine,)), ratio=10.0)
    assert judged["auroc"] == pytest.approx(metrics.roc_auc_score(labels, scores))


def test_the_threshold_leaves_the_ratio_above_it() -> None:
    train, test = torch.arange(600.0), torch.arange(600.0, 1000.0)
    assert threshold(train, test, ratio=1.0) == pytest.approx(np.percentile(np.arange(1000), 99))
    limit = threshold(train, test, ratio=2.5)
    assert int((torch.cat([train, test]) > limit).sum()) == 25


def test_random_scores_look_good_after_adjustment() -> None:
    """Ten segments of 200 points, a tenth of the series.  At a threshold that one point in a hundred exceeds, chance
    finds one in a hundred of the anomalous points, and 1 - 0.99^200 = 0.87 of them after adjustment."""
    g = torch.Generator().manual_seed(0)
    labels = torch.zeros(20_000, dtype=torch.bool)
    for begin in range(500, 20_000, 2000):
        labels[begin : begin + 200] = True
    data = Machines((Machine("chance", torch.zeros(20_000, 1), torch.zeros(20_000, 1), labels),))
    runs = [
        judge(torch.rand(20_000, generator=g), [torch.rand(20_000, generator=g)], data, ratio=1.0) for _ in range(20)
    ]
    found = {name: sum(r[name] for r in runs) / 20 for name in runs[0]}
    # Ten segments found or not, twenty times: a standard error of 0.024.
    assert found["adjusted_recall"] == pytest.approx(1 - 0.99**200, abs=0.07)
    assert found["adjusted_f1"] > 0.8
    assert found["f1"] < 0.03
    assert found["f1_area"] < 0.1, "which chance does not win"
    assert found["auroc"] == pytest.approx(0.5, abs=0.01)  # a standard error of 0.0015


def test_segments_of_two_machines_are_two() -> None:
    """The first ends and the second begins anomalous; only the first is hit."""
    machines = Machines(
        tuple(
            Machine(name, torch.zeros(4, 1), torch.zeros(4, 1), bits(word))
            for name, word in zip("ab", ("0011", "1100"), strict=True)
        )
    )
    scores = judge(torch.zeros(4), [torch.tensor([0.0, 0, 0, 1]), torch.zeros(4)], machines, ratio=5.0)
    assert scores["adjusted_recall"] == 0.5
    assert scores["recall"] == 0.25


def test_auroc_of_all_machines_together_compares_machines() -> None:
    """Each machine's points are ranked without a fault; the anomalous ones of the quiet machine are below the normal
    ones of the loud one.  A machine without anomalies counts in the first score alone."""
    words = {"quiet": "0011", "loud": "0001", "calm": "0000"}
    machines = Machines(tuple(Machine(k, torch.zeros(4, 1), torch.zeros(4, 1), bits(w)) for k, w in words.items()))
    test = [torch.tensor([1.0, 2, 3, 4]), torch.tensor([11.0, 12, 13, 14]), torch.tensor([21.0, 22, 23, 24])]
    scores = judge(torch.zeros(4), test, machines, ratio=10.0)
    assert scores["auroc_within"] == 1
    # Of 3 x 9 pairs: 2 + 2 of the quiet anomalies, and 2 + 3 of the loud one.
    assert scores["auroc"] == pytest.approx((2 + 2 + 5) / 27)


# windows


def test_no_training_window_reaches_into_the_next_series() -> None:
    starts = training_starts([5, 3, 4], window=3)
    assert starts.tolist() == [0, 1, 2, 5, 8, 9]
    points = torch.arange(12.0)[:, None]
    assert cut(points, starts, window=3)[3, :, 0].tolist() == [5, 6, 7]


@pytest.mark.parametrize(("length", "expected"), [(9, [0, 3, 6]), (10, [0, 3, 6, 7]), (11, [0, 3, 6, 8]), (3, [0])])
def test_tiles_cover_a_series(length: int, expected: list[int]) -> None:
    assert tiles(length, window=3).tolist() == expected


class Shy(nn.Module):
    """Reconstructs a window but for its first point, where it is wrong by the window's last value."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 0] += x[:, -1]
        return y


@pytest.mark.parametrize("length", [9, 10, 11, 3])
def test_every_point_has_the_error_of_its_first_tile(length: int) -> None:
    points = torch.arange(1.0, length + 1)[:, None] * torch.tensor([1.0, 2.0])
    errors = point_errors(Shy(), points, window=3)
    expected = [(1 + 4) / 2 * (t + 3) ** 2 if t % 3 == 0 and t + 3 <= length else 0.0 for t in range(length)]
    assert errors.tolist() == pytest.approx(expected)


def test_channels_are_standardized_by_the_training_parts_of_all() -> None:
    g = torch.Generator().manual_seed(0)
    still = torch.full((50, 1), 0.1)
    machines = Machines(
        tuple(
            Machine(
                f"m{k}",
                torch.cat([k + 5 * torch.randn(50, 2, generator=g), still], 1),
                torch.rand(9, 3),
                bits("0" * 8 + "1"),
            )
            for k in (0, 3)
        )
    )
    scaled = standardized(machines)
    train = torch.cat([one.train for one in scaled.series])
    torch.testing.assert_close(train.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(train.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]))
    # A channel that stands still in training keeps its unit: 0.1 is subtracted, nothing divided.
    torch.testing.assert_close(scaled.series[0].test[:, 2], machines.series[0].test[:, 2] - 0.1)


# layouts


def parts(*, train: int = 60, test: int = 50, channels: int = 3, seed: int = 0) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return {
        "train": rng.normal(size=(train, channels)),
        "test": rng.normal(size=(test, channels)),
        "labels": (np.arange(test) % 10 == 3).astype(np.float64),
    }


def loaded(path: Path, *, window: int = 10) -> Machines:
    return TASK.load(AnomalyConfig(data=str(path), window=window))


def test_one_machine_in_an_archive_or_a_folder(tmp_path: Path) -> None:
    given = parts()
    np.savez(tmp_path / "pump.npz", **given)
    archive = loaded(tmp_path / "pump.npz")
    assert archive.series[0].name == "pump"
    assert archive.series[0].labels.tolist() == (given["labels"] == 1).tolist()
    for header in ("", "speed,heat,load\n"):
        for key, values in given.items():
            rows = values if values.ndim == 2 else values[:, None]
            text = header[: 0 if not header else None] if key != "labels" else ("label\n" if header else "")
            lines = "\n".join(",".join(repr(float(v)) for v in row) for row in rows)
            (tmp_path / f"{key}.csv").write_text(text + lines + "\n")
        folder = loaded(tmp_path)
        assert torch.equal(folder.series[0].labels, archive.series[0].labels)
        torch.testing.assert_close(folder.series[0].train, archive.series[0].train)
        torch.testing.assert_close(folder.series[0].test, archive.series[0].test)


def test_several_machines_of_different_lengths(tmp_path: Path) -> None:
    first, second = parts(), parts(train=70, test=31, seed=1)
    second["labels"][:] = 0  # a machine without anomalies is no harm if another has some
    arrays = {f"{name}_{key}": v for name, p in (("a-1", first), ("b_2", second)) for key, v in p.items()}
    np.savez(tmp_path / "plant.npz", machines=np.array(["a-1", "b_2"]), **arrays)
    machines = loaded(tmp_path / "plant.npz")
    assert [(one.name, len(one.train), len(one.test)) for one in machines.series] == [("a-1", 60, 50), ("b_2", 70, 31)]
    assert machines.channels == 3


def telemanom() -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(0)
    return {
        "channels": np.array(["A-1", "B-7"]),
        "train_telemetry": rng.normal(size=50),
        "train_commands": rng.integers(0, 2, (50, 2)).astype(np.uint8),
        "train_offsets": np.array([0, 20, 50]),
        "test_telemetry": np.arange(44.0),
        "test_commands": rng.integers(0, 2, (44, 2)).astype(np.uint8),
        "test_offsets": np.array([0, 30, 44]),
        "labels": (np.arange(44) == 31).astype(np.uint8),
    }


def test_telemetry_and_commands(tmp_path: Path) -> None:
    given = telemanom()
    np.savez(tmp_path / "nasa.npz", **given)
    first, second = loaded(tmp_path / "nasa.npz").series
    assert (first.name, second.name) == ("A-1", "B-7")
    assert (first.train.shape, second.test.shape) == ((20, 3), (14, 3))
    assert second.labels.nonzero().flatten().tolist() == [1]
    assert not first.labels.any()
    offset = float(given["train_telemetry"].mean())
    torch.testing.assert_close(
        second.test[:, 0] * float(given["train_telemetry"].std()) + offset, torch.arange(30.0, 44.0), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("name", "machines", "channels", "points"),
    [
        ("smd3", 3, 38, (71_068, 71_070)),
        ("asd12", 12, 19, (102_331, 51_840)),
        ("msl_telemanom", 27, 55, (58_317, 73_729)),
        ("smap_telemanom", 54, 25, (138_004, 435_826)),
    ],
)
def test_the_shared_sets_load_as_they_are(name: str, machines: int, channels: int, points: tuple[int, int]) -> None:
    path = SHARED / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no {path.name} in ../shared/data")
    data = loaded(path, window=100)
    assert (len(data.series), data.channels) == (machines, channels)
    assert (sum(len(m.train) for m in data.series), sum(len(m.test) for m in data.series)) == points


# bad input


def refused(tmp_path: Path, arrays: dict[str, NDArray[np.generic]], match: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=match):
        loaded(tmp_path / "x.npz")


def test_bad_shapes(tmp_path: Path) -> None:
    good = parts()
    refused(tmp_path, good | {"labels": np.ones(49)}, r"x: test has 50 points, so labels is \(50,\); got \(49,\)")
    refused(tmp_path, good | {"test": good["test"][:, :2]}, "x: train has 3 channels and test has 2")
    refused(tmp_path, good | {"train": good["train"][:, 0]}, r"train is \(time, channels\); got shape \(60,\)")
    refused(tmp_path, good | {"train": good["train"][:9]}, "train has 9 points, fewer than window=10")
    refused(tmp_path, good | {"test": good["test"][:5], "labels": good["labels"][:5]}, "test has 5 points, fewer than")
    two = {f"a_{k}": v for k, v in good.items()} | {f"b_{k}": v for k, v in parts(channels=4).items()}
    refused(tmp_path, two, "a has 3 channels and b has 4: one network is trained on all")
    del two["b_test"]
    refused(tmp_path, two, "x.npz has no b_test; expected train, test and labels")
    refused(tmp_path, {"pictures": good["train"]}, "x.npz has pictures; expected train, test and labels; or NAME_train")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers(tmp_path: Path, value: float) -> None:
    bad = parts()
    bad["test"][17, 2] = bad["test"][20, 0] = value
    refused(tmp_path, bad, f"x: test has {value} at time 17 in channel 2, and 1 more")
    refused(tmp_path, parts() | {"train": np.full((60, 3), "warm")}, "train must be numbers, got <U4")


def test_labels_that_say_nothing(tmp_path: Path) -> None:
    good = parts()
    refused(tmp_path, good | {"labels": np.zeros(50)}, "none of the test points of x are anomalous")
    refused(tmp_path, good | {"labels": np.ones(50)}, "all of the test points of x are anomalous")
    two = {f"{m}_{k}": v for m in "ab" for k, v in good.items()} | {"a_labels": np.ones(50), "b_labels": np.zeros(50)}
    refused(tmp_path, two, "all of the test points of a are anomalous, and no other machine has both kinds")
    refused(tmp_path, good | {"labels": np.arange(50)}, "labels are 1 where a point is anomalous and 0 elsewhere")
    refused(tmp_path, good | {"labels": np.full(50, np.nan)}, "labels are 1 where a point is anomalous")


def test_channels_that_stand_still(tmp_path: Path) -> None:
    good = parts()
    refused(tmp_path, good | {"train": np.full((60, 3), 4.2)}, "no channel of the training part of x ever moves")
    good["train"][:, 1] = 4.2
    np.savez(tmp_path / "one.npz", **good)
    machine = loaded(tmp_path / "one.npz").series[0]
    assert not machine.train[:, 1].any()
    assert machine.test.isfinite().all()
    outcome = train(TASK, AnomalyConfig(window=10, steps=2, batch=4), Machines((machine,)), seed=0, sim=False)
    assert all(np.isfinite(v) for v in outcome.scores.values())


def test_bad_telemetry(tmp_path: Path) -> None:
    good = telemanom()
    refused(tmp_path, good | {"train_offsets": np.array([0, 50])}, "train_offsets has 2 entries up to 50; expected 3")
    refused(tmp_path, good | {"test_commands": good["test_commands"][1:]}, "44 points of telemetry and 43 of commands")
    refused(tmp_path, good | {"labels": good["labels"][1:]}, "43 labels for 44 points")


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no .*nowhere.npz; data is a .npz, or a folder"):
        loaded(tmp_path / "nowhere.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"no .npz archive of plain arrays"):
        loaded(tmp_path / "text.npz")
    with pytest.raises(ValueError, match=r"there is no .*train.csv; a folder has"):
        loaded(tmp_path)
    (tmp_path / "train.csv").write_text("1,2\n3\n")
    with pytest.raises(ValueError, match=r"train.csv: rows differ in length"):
        loaded(tmp_path)
    (tmp_path / "train.csv").write_text("1,2\n3,\n" + "4,5\n" * 20)
    (tmp_path / "test.csv").write_text("1,2\n" * 20)
    (tmp_path / "labels.csv").write_text("0\n" * 20)
    with pytest.raises(ValueError, match="train has nan at time 1 in channel 1"):
        loaded(tmp_path)
    (tmp_path / "train.csv").write_text("")
    with pytest.raises(ValueError, match=r"train.csv is empty"):
        loaded(tmp_path)


def test_bad_words() -> None:
    with pytest.raises(ValueError, match=r"model is one of itransformer-small, .*, mambats; got 'gru'"):
        AnomalyConfig(model="gru")
    with pytest.raises(ValueError, match="at least 8 points, got window=4"):
        AnomalyConfig(window=4)
    for ratio in (0.0, 100.0):
        with pytest.raises(ValueError, match="ratio is per cent"):
            AnomalyConfig(ratio=ratio)
    with pytest.raises(ValueError, match="width must not be negative"):
        AnomalyConfig(width=-1)


# training


def test_it_is_the_task_of_its_name() -> None:
    assert named("anomaly") is TASK


@pytest.mark.parametrize("model", [name for name in NETWORKS if name.endswith("-small")])
def test_it_finds_where_sines_break(model: str) -> None:
    config = AnomalyConfig(model=model, steps=60, batch=16)
    outcome = train(TASK, config, TASK.load(config), seed=0, sim=False)
    assert outcome.scores["auroc"] > 0.9
    assert outcome.scores["adjusted_f1"] > outcome.scores["f1"] > 0.25
    assert outcome.blocks == []


@pytest.mark.parametrize("model", [name for name in NETWORKS if name.endswith("-small")])
def test_with_sim_and_without_are_paired(model: str) -> None:
    """SIM with a vanishing weight is no SIM, bit by bit; with a large one the network is another."""
    state = torch.get_rng_state()
    config = AnomalyConfig(model=model, steps=4, batch=4, window=50, sim="auto", sim_weight="0")
    data = TASK.load(config)
    without, nothing = (train(TASK, config, data, seed=3, sim=sim) for sim in (False, True))
    some = train(
        TASK,
        AnomalyConfig(model=model, steps=4, batch=4, window=50, sim="auto", sim_weight="1"),
        data,
        seed=3,
        sim=True,
    )
    other = train(TASK, config, data, seed=4, sim=False)
    assert nothing.blocks == some.blocks != without.blocks == []
    for name, value in without.method.state_dict().items():
        assert torch.equal(nothing.method.state_dict()[name], value), name
    for changed in (some, other):
        assert any(not torch.equal(changed.method.state_dict()[k], v) for k, v in without.method.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_blocks_by_name_and_width() -> None:
    config = AnomalyConfig(steps=1, batch=2, window=50, width=8, sim="blocks.1")
    outcome = train(TASK, config, TASK.load(config), seed=0, sim=True)
    assert outcome.blocks == ["blocks.1"]
    assert outcome.method.network.embed.out_features == 8


def test_the_command_stores_and_compares(tmp_path: Path) -> None:
    config = AnomalyConfig(steps=2, batch=2, window=50, sim="auto", paired=True, seeds=2, out=str(tmp_path))
    report = run("anomaly", TASK, config)
    assert json.loads((tmp_path / "task.json").read_text())["scores"] == report["scores"]
    assert len(report["runs"]) == 4
    assert set(report["scores"]["auroc"]) == {"without", "with", "difference"}


def test_auroc_of_the_task_is_that_of_its_scores() -> None:
    config = AnomalyConfig(steps=5, batch=4)
    data = TASK.load(config)
    outcome = train(TASK, config, data, seed=0, sim=False)
    (one,) = data.series
    errors = point_errors(outcome.method.eval().encode, one.test, window=config.window)
    assert outcome.scores["auroc"] == multilabel_auroc(errors[:, None], one.labels[:, None])
