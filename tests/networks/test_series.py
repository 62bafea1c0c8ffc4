"""Networks for series against what their papers say, and as networks."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import reglet
from reglet.networks.series import (
    ITransformer,
    LightTS,
    MambaTS,
    TimesNet,
    itransformer_small,
    lightts_small,
    mambats_small,
    timesnet_small,
)
from reglet.networks.series.lightts import Exchange, continuous, interval
from reglet.networks.series.mambats import linear_scan, selective_scan
from reglet.networks.series.timesnet import Inception, TimesBlock, fold, periods, sinusoids, unfold
from reglet.networks.series.window_norm import normalized, restored

Kind = Callable[..., ITransformer | LightTS | TimesNet | MambaTS]
KINDS = (itransformer_small, lightts_small, timesnet_small, mambats_small)
every = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def made(kind: Kind, *, channels: int = 5, length: int = 40) -> ITransformer | LightTS | TimesNet | MambaTS:
    torch.manual_seed(0)
    return kind(channels=channels, length=length)


def waves(n: int, *, channels: int = 5, length: int = 40, seed: int = 0) -> Tensor:
    """Windows of sines of a period of ten points, each channel with a phase of its own that moves with the window."""
    begin = torch.rand(n, 1, 1, generator=torch.Generator().manual_seed(seed))
    angle = torch.arange(length).view(1, -1, 1) / 10 + begin + torch.arange(channels) / channels
    return (2 * math.pi * angle).sin()


@pytest.mark.parametrize("kind", [ITransformer, LightTS, TimesNet, MambaTS])
def test_the_canonical_names_have_a_published_size(kind: Kind) -> None:
    """What the authors' scripts say: d_model of 512, four times 128, 128, and 128."""
    with torch.device("meta"):
        net = kind(channels=25, length=100)
        assert net.sim_blocks
    sizes = {
        ITransformer: lambda net: (net.embed.out_features, len(net.blocks), net.blocks[0].linear1.out_features),
        LightTS: lambda net: (net.continuous.out.out_features, net.chunk),
        TimesNet: lambda net: (
            net.embed.out_channels,
            len(net.blocks),
            net.blocks[0].top,
            len(net.blocks[0].convs[0].convs),
        ),
        MambaTS: lambda net: (net.embed.out_features, len(net.blocks), net.patch, net.blocks[0].drop.p),
    }
    printed = {ITransformer: (512, 3, 512), LightTS: (128, 24), TimesNet: (128, 3, 3, 6), MambaTS: (128, 4, 48, 0.2)}
    assert sizes[kind](net) == printed[kind]


# the laws of a reconstructor


@every
@pytest.mark.parametrize(("channels", "length"), [(5, 40), (1, 8), (3, 37), (2, 101)])
def test_a_window_in_is_a_window_out(kind: Kind, channels: int, length: int) -> None:
    x = torch.randn(4, length, channels)
    y = made(kind, channels=channels, length=length)(x)
    assert y.shape == x.shape
    assert y.isfinite().all()


@every
def test_every_parameter_gets_a_gradient(kind: Kind) -> None:
    net = made(kind)
    net(torch.randn(4, 40, 5)).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@every
def test_still_windows_and_huge_ones_are_finite(kind: Kind) -> None:
    net = made(kind)
    for x in (torch.zeros(3, 40, 5), torch.full((3, 40, 5), 7.0), 1e6 * torch.randn(3, 40, 5)):
        x.requires_grad_()
        y = net(x)
        y.mean().backward()
        assert y.isfinite().all()
        assert x.grad is not None
        assert x.grad.isfinite().all()


@every
def test_it_learns_a_sine_within_seconds(kind: Kind) -> None:
    net = made(kind)
    x, new = waves(256), waves(64, seed=1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    for step in range(100):
        part = x[32 * (step % 8) :][:32]
        optimizer.zero_grad()
        F.mse_loss(net(part), part).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        assert F.mse_loss(net(new), new) < 0.05 * new.var()


@every
def test_sim_on_its_own_blocks_reaches_them_and_leaves_no_trace(kind: Kind) -> None:
    net, x = made(kind), torch.randn(6, 40, 5)
    net.eval()
    before, names = net(x), list(net.state_dict())
    sim = reglet.attach(net, list(net.sim_blocks), reglet.SIM(), example=x)
    net.train()
    net(x)
    sim.loss().backward()
    assert len(sim.blocks) >= 2
    for name in sim.blocks:
        grads = [p.grad for p in net.get_submodule(name).parameters() if p.grad is not None]
        assert grads, name
        assert any(g.any() for g in grads), name
    sim.remove()
    net.eval()
    assert torch.equal(net(x), before)
    assert list(net.state_dict()) == names


# level and scale of a window


def test_normalized_windows_have_one_level_and_come_back() -> None:
    x = 5 + 3 * torch.randn(4, 50, 3)
    z, level = normalized(x)
    torch.testing.assert_close(z.mean(1), torch.zeros(4, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(z.square().mean(1), torch.ones(4, 3), atol=1e-4, rtol=0)  # eps = 1e-5 of a variance of 9
    torch.testing.assert_close(restored(z, level), x)
    assert torch.equal(normalized(torch.full((1, 10, 2), 3.0))[0], torch.zeros(1, 10, 2))


@every
def test_which_networks_follow_the_level_of_a_window(kind: Kind) -> None:
    """All but LightTS put each window on a level and a scale of its own, and back."""
    net, x = made(kind).eval().double(), torch.randn(3, 40, 5, dtype=torch.float64)
    moved = net(100 + 10 * x)
    # eps = 1e-5 beside variances of 1 and 100: a relative 1e-5 of an output of about 10
    assert torch.allclose(moved, 100 + 10 * net(x), atol=1e-3) == (kind is not lightts_small)


# iTransformer


def test_the_tokens_of_itransformer_are_variates() -> None:
    net, x = made(itransformer_small).eval(), torch.randn(3, 40, 5)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(net(x[:, :, order]), net(x)[:, :, order], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(net(x).roll(7, 1), net(x.roll(7, 1)), atol=1e-2)  # times are features, with places


def test_itransformer_attends_to_other_variates() -> None:
    net, x = made(itransformer_small).eval(), torch.randn(3, 40, 5)
    other = x.clone()
    other[:, :, 4] = torch.randn(3, 40)
    assert (net(x)[:, :, 0] - net(other)[:, :, 0]).abs().max() > 1e-3


def test_heads_divide_the_width() -> None:
    with pytest.raises(ValueError, match="width 30 does not divide among 4 heads"):
        ITransformer(channels=2, length=10, width=30, heads=4)


# LightTS


def test_continuous_and_interval_sampling_by_hand() -> None:
    x = torch.stack([torch.arange(12.0), 100 + torch.arange(12.0)])
    near, far = continuous(x, chunk=4), interval(x, chunk=4)
    assert near[0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert far[0].tolist() == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    assert torch.equal(near[1], near[0] + 100)
    assert torch.equal(far[1], far[0] + 100)
    for sampled in (near, far):  # nothing is lost
        assert sampled[0].flatten().sort().values.tolist() == list(range(12))
    with pytest.raises(ValueError, match="12 points has no whole parts of 5"):
        continuous(x, chunk=5)


def test_an_exchange_block_by_hand() -> None:
    torch.manual_seed(0)
    block, x = Exchange(4, 3, hidden=8, out=5), torch.randn(2, 3, 4)
    nn.init.normal_(block.among.weight)
    expected = torch.empty(2, 3, 5)
    for b in range(2):
        columns = torch.stack([block.each(x[b, w]) for w in range(3)])
        rows = torch.stack([columns[:, f] + block.among(columns[:, f]) for f in range(2)])
        for w in range(3):
            expected[b, w] = block.out(rows[:, w])
    torch.testing.assert_close(block(x), expected)


def test_lightts_hears_of_the_far_end_of_a_window_and_of_other_variates() -> None:
    net = made(lightts_small).eval()
    x = torch.randn(1, 40, 5, requires_grad=True)
    nn.init.normal_(net.variates.among.weight)  # the mixing begins as the identity
    net(x)[0, 0, 0].backward()
    assert x.grad is not None
    assert x.grad[0, -1, 0] != 0
    assert x.grad[0, 20, 3] != 0


# TimesNet


@pytest.mark.parametrize(("length", "period"), [(100, 20), (100, 25), (96, 12), (90, 45)])
def test_the_period_of_a_sine_is_found(length: int, period: int) -> None:
    t = torch.arange(length).view(1, -1, 1)
    x = 50 + (2 * math.pi * t / period + torch.rand(4, 1, 3)).sin()  # the mean, however large, is no period
    found = periods(x, top=1)
    assert found.lengths == [period]
    torch.testing.assert_close(found.amplitudes, torch.full((4, 1), length / 2), atol=1e-2, rtol=0)  # of floats near 50


def test_the_stronger_period_comes_first_and_windows_have_strengths_of_their_own() -> None:
    t = torch.arange(60).view(1, -1, 1)
    fast, slow = (2 * math.pi * t / 6).sin(), (2 * math.pi * t / 30).sin()
    found = periods(torch.cat([fast + 4 * slow, 2 * fast]), top=2)
    assert found.lengths == [30, 6]  # on average over the batch
    torch.testing.assert_close(found.amplitudes, torch.tensor([[120.0, 30.0], [0.0, 60.0]]), atol=1e-3, rtol=0)


def test_there_are_only_so_many_periods() -> None:
    with pytest.raises(ValueError, match="10 points has 5 frequencies, so no 6"):
        periods(torch.randn(2, 10, 1), top=6)


def test_a_row_of_the_table_is_a_period() -> None:
    x = torch.arange(10.0).view(1, 10, 1).expand(2, 10, 3)
    table = fold(x, period=4)
    assert table.shape == (2, 3, 3, 4)
    assert table[1, 2].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 0]]
    assert torch.equal(unfold(table, length=10), x)


def test_one_convolution_is_the_mean_of_several() -> None:
    torch.manual_seed(0)
    net, x = Inception(3, 4, sizes=3), torch.randn(2, 3, 6, 5)
    for conv in net.convs:
        nn.init.normal_(conv.bias)
    torch.testing.assert_close(net(x), torch.stack([conv(x) for conv in net.convs]).mean(0), atol=1e-5, rtol=1e-5)


def test_a_times_block_by_hand() -> None:
    torch.manual_seed(0)
    block, x = TimesBlock(4, top=2, sizes=2), torch.randn(3, 24, 4)
    spectrum = torch.fft.rfft(x, dim=1).abs().mean(2)
    chosen = sorted(range(1, 13), key=lambda f: -float(spectrum[:, f].mean()))[:2]
    expected = x.clone()
    for n in range(3):
        share = torch.tensor([spectrum[n, f] for f in chosen]).softmax(0)
        for f, weight in zip(chosen, share, strict=True):
            rows = -(-24 // (24 // f))
            padded = torch.zeros(rows * (24 // f), 4)
            padded[:24] = x[n]
            table = padded.view(1, rows, 24 // f, 4).permute(0, 3, 1, 2)
            expected[n] += weight * block.convs(table)[0].permute(1, 2, 0).reshape(-1, 4)[:24]
    torch.testing.assert_close(block(x), expected, atol=1e-5, rtol=1e-5)


def test_places_are_sinusoids() -> None:
    places = sinusoids(7, 5)
    assert places.shape == (7, 5)
    assert places[3, 0] == pytest.approx(math.sin(3))
    assert places[3, 1] == pytest.approx(math.cos(3))
    assert places[3, 4] == pytest.approx(math.sin(3 / 10000 ** (4 / 5)))


# MambaTS


def naive_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Number by number, from the recurrence as it is printed."""
    n, length, d = u.shape
    rows = []
    for i in range(n):
        h, row = torch.zeros_like(A), []
        for t in range(length):
            h = torch.stack(
                [torch.exp(delta[i, t, k] * A[k]) * h[k] + delta[i, t, k] * B[i, t] * u[i, t, k] for k in range(d)]
            )
            row.append(h @ C[i, t] + D * u[i, t])
        rows.append(torch.stack(row))
    return torch.stack(rows)


def scan_inputs(length: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(length)
    shapes = [(2, length, 3), (2, length, 3), (3, 4), (2, length, 4), (2, length, 4), (3,)]
    u, delta, A, B, C, D = (torch.randn(s, generator=g, dtype=torch.float64) for s in shapes)
    return [z.requires_grad_() for z in (u, delta.abs(), -A.abs(), B, C, D)]


@pytest.mark.parametrize("length", [1, 2, 9])
def test_the_selective_scan_is_the_recurrence_in_value_and_gradient(length: int) -> None:
    inputs = scan_inputs(length)
    weight = torch.randn(2, length, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def graded(scan: Callable[..., Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        y = scan(*inputs)
        # With one token h_{-1} = 0 is all that A meets, so neither way gives it a gradient other than zero.
        return y, torch.autograd.grad((weight * y).sum(), inputs, allow_unused=True, materialize_grads=True)

    (y, grads), (expected, expected_grads) = graded(selective_scan), graded(naive_scan)
    torch.testing.assert_close(y, expected)
    for grad, other in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(grad, other)


def test_a_linear_scan_by_hand_and_by_differences() -> None:
    a, b = torch.tensor([9.0, 2.0, 0.5]), torch.tensor([1.0, 1.0, 4.0])
    assert linear_scan(a, b).tolist() == [1, 3, 5.5]
    assert (a.tolist(), b.tolist()) == ([9.0, 2.0, 0.5], [1.0, 1.0, 4.0])  # left as they were
    inputs = [torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(linear_scan, inputs)


def test_a_block_of_mambats_sees_the_past_only() -> None:
    block = made(mambats_small).eval().blocks[0]
    x = torch.randn(1, 12, 16, requires_grad=True)
    block(x)[0, 6].sum().backward()
    assert x.grad is not None
    touched = x.grad[0].abs().sum(1) > 0
    assert touched.tolist() == [t <= 6 for t in range(12)]


def test_the_scan_visits_all_variables_at_one_time_before_the_next() -> None:
    net, seen = made(mambats_small, channels=3, length=40).eval(), []
    net.blocks.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    with torch.no_grad():
        nn.init.zeros_(net.places)
        net.embed.weight.fill_(1 / 20)
        nn.init.zeros_(net.embed.bias)
        x = torch.cat([torch.zeros(1, 20, 3), torch.ones(1, 20, 3)], 1) * torch.tensor([1.0, 10.0, 100.0])
        net(x + torch.tensor([1.0, 2.0, 3.0]))
    sign = seen[0][0, :, 0].sign().tolist()  # each variable's first patch is below its mean, its second above
    assert sign == [-1, -1, -1, 1, 1, 1]


def test_variables_are_shuffled_in_training_alone() -> None:
    torch.manual_seed(0)
    net = mambats_small(channels=6, length=40, dropout=0.0)
    x = torch.randn(2, 40, 6)
    assert len({tuple(net(x).flatten().tolist()) for _ in range(4)}) > 1
    net.eval()
    assert torch.equal(net(x), net(x))
    net.train()
    torch.manual_seed(1)
    order = torch.randperm(6)
    torch.manual_seed(1)
    shuffled = net(x)
    net.eval()
    torch.testing.assert_close(shuffled[:, :, order], net(x[:, :, order]))


def test_steps_begin_between_a_thousandth_and_a_tenth() -> None:
    block = made(mambats_small).blocks[0]
    delta = F.softplus(block.step.bias.detach())
    assert 1e-3 <= float(delta.min()) < float(delta.max()) <= 1e-1
    torch.testing.assert_close(block.log_A.detach().exp()[5], torch.arange(1.0, 5.0))
