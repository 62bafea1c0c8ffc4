"""SIM against the formula of the specification, written out; its laws; its parameter counts."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.blocks import SIM, SIMHead
from reglet.blocks.distances import DISTANCES
from reglet.types import BlockLoss

NORMALIZED = ("norm_l2", "norm_mse", "l1")


def maps(c: int = 6, h: int = 6, w: int = 6, *, b: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(b, c, h, w, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def mlp(layers: Any, z: Tensor) -> Tensor:
    """Linear layers with ReLU between them."""
    for i, (weight, bias) in enumerate(layers):
        z = (z.relu() if i else z) @ weight.T + bias
    return z


def oracle(head: SIMHead, x: Tensor, y: Tensor, places: Tensor, *, loss: str, before: bool, eps: float) -> Tensor:
    """Section 1.1 of the specification, for maps of one size, from the weights of the head."""
    weights = dict(head.net.named_parameters())
    names = ["stem.0", "trunk.1", "trunk.3"]
    layers = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
    xs, ys = (z.flatten(2)[:, :, places].transpose(1, 2) for z in (x, y))

    def t(z: Tensor) -> Tensor:
        return (z - z.mean(1, keepdim=True)) / (z.var(1, keepdim=True) + eps**2).sqrt()

    def predictor(z: Tensor) -> Tensor:
        return z @ weights["predictor.weight"].T + weights["predictor.bias"]

    zx, hy = mlp(layers, xs).detach(), mlp(layers, ys)
    if loss not in NORMALIZED:
        u, v = predictor(hy), zx
    else:
        u, v = (predictor(t(hy)) if before else t(predictor(hy))), t(zx)
    distance = {
        "norm_l2": lambda: (u - v).norm(dim=-1).mean(),
        "norm_mse": lambda: F.mse_loss(u, v),
        "l1": lambda: F.l1_loss(u, v),
        "mse": lambda: F.mse_loss(u, v),
        "smooth_l1": lambda: F.smooth_l1_loss(u, v),
        "cosine": lambda: (F.normalize(u, dim=-1) - F.normalize(v, dim=-1)).square().sum(-1).mean(),
        "kl": lambda: F.kl_div(u.log_softmax(-1), v.softmax(-1), reduction="none").sum(-1).mean(),
        "wasserstein": lambda: F.l1_loss(u.sort(1).values, v.sort(1).values),
    }
    return distance[loss]()


def places_of(sim: SIM, x: Tensor) -> Tensor:
    return sim.sampler.choose(x.flatten(2).transpose(1, 2), tuple(x.shape[2:]), tuple(x.shape[2:]))[0][0]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("loss", sorted(DISTANCES))
def test_value_and_gradients_are_those_of_the_formula(loss: Any, before: bool) -> None:
    x, y = maps(), maps(seed=1).requires_grad_()
    sim = SIM(loss=loss, dim=5, norm_before_predictor=before)
    places = places_of(sim, x)
    value = sim(x, y)
    assert sim.head is not None
    leaves = [y, *sim.parameters()]
    found = torch.autograd.grad(value, leaves)
    expected = oracle(sim.head, x, y, places, loss=loss, before=before, eps=1e-4)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, leaves))


def test_a_block_loss() -> None:
    assert isinstance(SIM(), BlockLoss)


@pytest.mark.parametrize("match", ["stem", "pre"])
@pytest.mark.parametrize("sampling", ["shared", "per_sample", "salient"])
def test_gradcheck(match: Any, sampling: Any) -> None:
    x, y = maps(4, 6, 6, b=2), maps(5, 3, 3, b=2, seed=1).requires_grad_()
    sim = SIM(match=match, sampling=sampling, dim=3)
    sim(x, y)
    head = sim.head
    assert head is not None
    assert torch.autograd.gradcheck(lambda y: head(head.after(head.before(x), y)), y)


def test_the_target_is_cut_and_only_picked_tokens_get_a_gradient() -> None:
    x, y = maps().requires_grad_(), maps(seed=1).requires_grad_()
    sim = SIM(dim=16)  # wide enough that some hidden unit is alive at each token
    places = places_of(sim, x)
    sim(x, y).backward()
    assert x.grad is None
    assert y.grad is not None
    touched = y.grad.flatten(2).abs().sum((0, 1)) > 0
    assert set(touched.nonzero().flatten().tolist()) == set(places.tolist())
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0 for name, p in sim.named_parameters() if "bias" not in name
    )


@pytest.mark.parametrize("loss", ["norm_l2", "mse"])
def test_rho_one_is_all_tokens_however_they_are_sampled(loss: Any) -> None:
    x, y = maps(), maps(seed=1)
    values = [SIM(rho=1.0, loss=loss, sampling=s)(x, y) for s in ("shared", "per_sample", "salient")]  # type: ignore[arg-type]
    sim = SIM(loss=loss)
    sim(x, y)
    assert sim.head is not None
    everything = oracle(sim.head, x, y, torch.arange(36), loss=loss, before=False, eps=1e-4)
    for value in values:
        torch.testing.assert_close(value, everything)


def test_sampling_is_unbiased_where_nothing_is_normalized() -> None:
    x, y = maps(), maps(seed=1)
    sampled = SIM(rho=0.25, loss="mse")
    values = torch.stack([sampled(x, y) for _ in range(400)]).detach()
    whole = SIM(rho=1.0, loss="mse")(x, y)
    assert (values.mean() - whole).abs() < 4 * values.std() / 20


def test_plain_sim_is_equation_one() -> None:
    x, y = maps(4), maps(6, seed=1)
    sim = SIM.plain()
    value = sim(x, y)
    assert sim.head is not None
    assert sim.reduction == "sum"
    g = sim.head.net.predictor
    torch.testing.assert_close(value, F.mse_loss(g(y.permute(0, 2, 3, 1)), x.permute(0, 2, 3, 1)))


def identity(sim: SIM, x: Tensor, y: Tensor) -> SIM:
    """`sim` with a head that reconstructs by doing nothing."""
    sim(x, y)
    assert sim.head is not None
    sim.head.net.predictor = nn.Identity()
    return sim


POOLS = [
    (nn.AvgPool2d(2), (2, 3, 8, 12), None),
    (nn.AvgPool2d((2, 1)), (2, 3, 8, 6), None),
    (nn.AdaptiveAvgPool2d((3, 4)), (2, 5, 7, 9), None),
    (nn.Upsample(scale_factor=2), (2, 3, 4, 6), None),
    (nn.AvgPool1d(3), (2, 3, 12), 1),
    (nn.AvgPool3d(2), (2, 3, 4, 4, 6), None),
    (nn.AdaptiveAvgPool2d(1), (6, 3, 8, 8), None),
    (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), (6, 3, 8, 8), None),
    (nn.AdaptiveAvgPool2d((2, 1)), (6, 3, 8, 8), None),
]


@pytest.mark.parametrize(("pool", "shape", "channel_dim"), POOLS)
@pytest.mark.parametrize("loss", ["mse", "norm_l2"])
@pytest.mark.parametrize("sampling", ["shared", "per_sample", "salient"])
def test_an_output_token_is_paired_with_its_own_window(
    pool: nn.Module, shape: tuple[int, ...], channel_dim: int | None, loss: Any, sampling: Any
) -> None:
    """A block that averages windows puts out its target: zero, where any other pairing is not."""
    x = torch.randn(shape, dtype=torch.float64)
    y = pool(x)
    sim = identity(SIM(dim=None, rho=0.4, loss=loss, sampling=sampling, channel_dim=channel_dim), x, y)
    for _ in range(3):
        assert sim(x, y) < 2e-6  # the floor sqrt(1e-12) of the norm
        assert sim(x, y.roll(1, dims=-1)) > 1e-3 or y.shape[-1] == 1


def test_a_strided_sequence_is_pooled_along_its_tokens() -> None:
    x = torch.randn(2, 12, 3, dtype=torch.float64)
    y = x.unflatten(1, (6, 2)).mean(2)
    assert identity(SIM(dim=None, loss="mse"), x, y)(x, y) < 1e-20


def test_layouts_of_the_same_tokens_have_the_same_loss() -> None:
    x, y = maps(6, 4, 4), maps(6, 4, 4, seed=1)
    expected = SIM()(x, y)

    def last(z: Tensor) -> Tensor:
        return z.permute(0, 2, 3, 1).contiguous()

    def sequence(z: Tensor) -> Tensor:
        return last(z).flatten(1, 2)

    others = [
        SIM(channel_dim=-1)(last(x), last(y)),
        SIM()(sequence(x), sequence(y)),
        SIM()(x, sequence(y)),
        SIM(channel_dim=1)(x.flatten(2), y.flatten(2)),
        SIM(batch_dim=1)(sequence(x).transpose(0, 1), sequence(y).transpose(0, 1)),
        SIM()(*(z.to(memory_format=torch.channels_last) for z in (x, y))),
        SIM()(x[:, :, None], y[:, :, None]),
        SIM(skip_tokens=1)(*(torch.cat([torch.ones(3, 1, 6), sequence(z)], 1) for z in (x, y))),
    ]
    for other in others:
        torch.testing.assert_close(other, expected)


def test_vectors_take_the_batch_for_tokens() -> None:
    x, y = torch.randn(10, 6, dtype=torch.float64), torch.randn(10, 6, dtype=torch.float64)
    torch.testing.assert_close(SIM()(x, y), SIM()(x[None], y[None]))
    small = SIM(rho=1.0)(x[:, :, None, None], y[:, :, None, None])
    torch.testing.assert_close(small, SIM(rho=1.0)(x[None], y[None]))
    with pytest.raises(ValueError, match="at least 3 of them, got 2"):
        SIM()(x[:2], y[:2])


def test_two_tokens_are_not_standardized_against_each_other() -> None:
    x, y = torch.randn(4, 2, 6, dtype=torch.float64), torch.randn(4, 2, 6, dtype=torch.float64)
    torch.testing.assert_close(SIM()(x, y), SIM()(x.flatten(0, 1)[None], y.flatten(0, 1)[None]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    x, y = maps().to(dtype), maps(seed=1).to(dtype).requires_grad_()
    value = SIM()(x, y)
    value.backward()
    assert value.dtype == torch.float32
    assert torch.equal(value, SIM()(x.float(), y.detach().float()))
    assert y.grad is not None
    assert y.grad.dtype == dtype


AUTOCAST = """
import torch
from torch import nn
import reglet
def run(enabled):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Identity(), nn.Conv2d(8, 8, 3, padding=1))
    seen = []
    model[0].register_forward_hook(lambda _m, _a, x: seen.append(x.detach()))
    sim = reglet.attach(model, "1", reglet.SIM())
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        y = model(torch.randn(2, 3, 8, 8))
        loss = sim.loss()
    loss.backward()
    head = sim.heads["1"]
    return y.dtype, loss, head, seen[0]
dtype, loss, head, x = run(True)
assert dtype == torch.bfloat16 and loss.dtype == torch.float32
assert all(p.dtype == p.grad.dtype == torch.float32 for p in head.net.parameters())
# the identity block makes x = y, so the head alone makes the loss, and a bfloat16 one would be off by 1e-2
assert x.dtype == torch.bfloat16
sim = reglet.SIM()
torch.testing.assert_close(loss, sim(x.float(), x.float()), rtol=1e-6, atol=0)
print("ok")
"""


def test_autocast_does_not_reach_the_heads() -> None:
    """In a process of its own: oneDNN's bfloat16 kernels have to be chosen before it starts."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", AUTOCAST], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "ok\n", done.stderr


def resnet(blocks: tuple[int, ...], widths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Channels in and out of each block."""
    c_in, every = 64, []
    for count, c_out in zip(blocks, widths, strict=True):
        every += [(c_in, c_out)] + [(c_out, c_out)] * (count - 1)
        c_in = c_out
    return every


BASIC, BOTTLENECK = (64, 128, 256, 512), (256, 512, 1024, 2048)
R18, R50 = resnet((2, 2, 2, 2), BASIC), resnet((3, 4, 6, 3), BOTTLENECK)
R101, R152 = resnet((3, 4, 23, 3), BOTTLENECK), resnet((3, 8, 36, 3), BOTTLENECK)


def count(sim: SIM, channels: list[tuple[int, int]]) -> int:
    return sum(p.numel() for c_in, c_out in channels for p in sim.head_of(c_in, c_out).parameters())


def test_parameter_counts() -> None:
    """1,122,871 is the paper's 25.04 - 23.92 million for ResNet-50 on CUB (table 3)."""
    assert count(SIM(dim="sqrt"), R50) == 1_122_871
    assert count(SIM(dim=128), [(64, 64)]) == 82_560
    per_width = {64: 1_320, 128: 3_355, 256: 9_296, 512: 24_574, 1024: 69_792, 2048: 192_645}
    assert {c: count(SIM(dim="sqrt"), [(c, c)]) for c in per_width} == per_width
    assert count(SIM(), [(64, 64)]) == count(SIM(dim=16), [(64, 64)])  # ours is never narrower
    assert count(SIM(), [(1024, 1024)]) == per_width[1024]


MILLIONS = [  # section 1.4 of the specification
    (SIM(dim=128, match="pre"), (1.078, 7.186, 12.77, 17.83)),
    (SIM(dim="sqrt", match="pre"), (0.226, 3.700, 4.887, 5.892)),
    (SIM(dim="sqrt"), (0.077, 1.123, 2.309, 3.315)),
]


@pytest.mark.parametrize(("sim", "millions"), MILLIONS)
def test_parameter_counts_of_other_settings(sim: SIM, millions: tuple[float, ...]) -> None:
    for channels, printed in zip((R18, R50, R101, R152), millions, strict=True):
        assert count(sim, channels) / 1e6 == pytest.approx(printed, abs=0.006 if printed > 10 else 0.0006)


def test_stem_gives_x_a_first_layer_that_is_not_trained() -> None:
    x, y = maps(4), maps(6, seed=1).requires_grad_()
    sim = SIM()
    sim(x, y).backward()
    assert sim.head is not None
    buffers = {name for name, _ in sim.head.net.named_buffers()}
    assert buffers == {"x_stem.0.weight", "x_stem.0.bias"}
    assert all(p.grad is not None for p in sim.parameters())
    same = SIM()
    same(y, y)
    assert same.head is not None
    assert not list(same.head.net.buffers())


def test_x_has_its_own_frozen_projection_if_not_shared() -> None:
    x, y = maps(), maps(seed=1)
    sim = SIM(shared=False)
    sim(x, y)
    assert sim.head is not None
    rows = torch.randn(2, 5, 6, dtype=torch.float64)
    net = sim.head.net
    assert net.x_stem is not None
    assert net.x_trunk is not None
    before = net.x_trunk(net.x_stem(rows)).clone()
    for p in sim.parameters():
        p.data.zero_()
    assert torch.equal(net.x_trunk(net.x_stem(rows)), before)


def test_pre_maps_the_output_to_the_channels_of_the_input() -> None:
    net = SIM(dim=4, match="pre").head_of(16, 36).net
    assert [tuple(p.shape) for p in net.stem.parameters()] == [(16, 36), (8, 16), (8,)]
    assert net.x_stem is None
    assert net.stem_of_x == [net.stem[1]]


def test_skip_leaves_blocks_out() -> None:
    assert SIM(match="skip").build(maps(4), maps(6), position=0) is None
    assert SIM(match="skip").build(maps(6), maps(6), position=0) is not None
    with pytest.raises(ValueError, match="match='skip'"):
        SIM(match="skip")(maps(4), maps(6))


def test_heads_come_from_the_seed_and_the_position() -> None:
    def weights(seed: int, position: int) -> Tensor:
        head = SIM(seed=seed).build(maps(), maps(), position=position)
        assert head is not None
        return torch.cat([p.flatten() for p in head.parameters()])

    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = weights(0, 0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    assert torch.equal(weights(0, 0), first)
    assert not torch.equal(weights(0, 1), first)
    assert not torch.equal(weights(1, 0), first)


def test_weights_must_not_change_before_backward() -> None:
    x, y = maps(), maps(seed=1).requires_grad_()
    sim = SIM()
    value = sim(x, y)
    with torch.no_grad():
        for p in sim.parameters():
            p.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_backward_may_come_twice_and_scales() -> None:
    x, y = maps(), maps(seed=1).requires_grad_()
    sim = SIM()
    value = sim(x, y)
    leaves = [y, *sim.parameters()]
    first = torch.autograd.grad(value, leaves, retain_graph=True)
    second = torch.autograd.grad(3 * value, leaves)
    torch.testing.assert_close([3 * g for g in first], list(second))


def test_outputs_of_another_size_than_before() -> None:
    head = SIM().build(maps(), maps(), position=0)
    assert head is not None
    head.after(head.before(maps()), maps())
    with pytest.raises(RuntimeError, match=r"outputs of grid \(6, 6\), and now \(3, 3\)"):
        head.after(head.before(maps()), maps(6, 3, 3))
    assert head(head.after(head.before(maps(6, 4, 4)), maps(6, 2, 2))) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "l3"}, "l3"),
        ({"match": "out"}, "out"),
        ({"sampling": "random"}, "random"),
        ({"reduction": "none"}, "none"),
        ({"dim": 0}, "dim"),
        ({"dim": "log"}, "log"),
        ({"rho": 0.0}, "rho"),
        ({"rho": 1.2}, "rho"),
        ({"skip_tokens": -1}, "skip_tokens"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):  # the shape checker of the test run may be first to say it
        SIM(**arguments)


def test_input_and_output_must_be_of_one_batch() -> None:
    with pytest.raises(ValueError, match="differ in batch size"):
        SIM()(maps(b=2), maps(b=4))
