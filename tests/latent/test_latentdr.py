"""LatentDR against the paper's formulas, written out; its laws; its parameter counts."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from tests.latent import oracles
from torch import Tensor, nn

import reglet
from reglet.latent import CrossEntropy, LatentDR, Mixup, RandomPool
from reglet.latent.attention import Layer, SampleAttention
from reglet.latent.classify import entropy
from reglet.schedules import linear
from reglet.tails import BCL, BalancedSoftmax
from reglet.types import LatentLoss

N, DIM, CLASSES = 7, 8, 3


def latents(n: int = N, *, seed: int = 0) -> Tensor:
    return torch.randn(n, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels(n: int = N) -> Tensor:
    return torch.arange(n) * 5 // 3 % CLASSES  # all classes, not equally often


def built(*, seed: int = 0, **arguments: Any) -> LatentDR:
    """In double precision; every weight random, norms and biases included, so that none can be forgotten."""
    torch.manual_seed(seed)
    dr = LatentDR(DIM, **{"dropout": 0.0, **arguments}).double()
    for p in dr.parameters():
        nn.init.normal_(p, std=0.5)
    return dr


def classifier(seed: int = 1) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(DIM, CLASSES).double()


def expected(
    dr: LatentDR, z: Tensor, y: Tensor, head: Any, z_d: Tensor, *, norm: str, heads: int = 1
) -> dict[str, Tensor]:
    attend = partial(oracles.attention, dr.restoration.mix, heads=heads)
    z_r = oracles.layer(dr.restoration, z_d, z, attend, norm=norm)
    average = y.mean(0).expand_as(y)
    return {
        "original": oracles.cross_entropy(head(z), y),
        "degraded": oracles.cross_entropy(head(z_d), average),
        "restored": oracles.cross_entropy(head(z_r), y),
    }


def check(got: dict[str, Tensor], want: dict[str, Tensor], *leaves: Tensor) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, rtol=1e-10, atol=1e-12)
        pairs = (torch.autograd.grad(t, leaves, retain_graph=True, allow_unused=True) for t in (got[name], value))
        for a, b in zip(*pairs, strict=True):
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("norm", ["post", "pre", "eq13"])
@pytest.mark.parametrize("exclude_self", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_attention_equals_the_formula(norm: Any, exclude_self: bool, soft: bool) -> None:
    dr, head = built(norm=norm, inner=6, heads=2, ff=5, exclude_self=exclude_self), classifier()
    z = latents().requires_grad_()
    y = torch.rand(N, CLASSES).double().softmax(1) if soft else labels()
    mix = partial(oracles.attention, dr.degradation.mix, heads=2, exclude_self=exclude_self)
    z_d = oracles.layer(dr.degradation, z, z, mix, norm=norm)
    rows = y if soft else torch.eye(CLASSES).double()[y]
    want = expected(dr, z, rows, head, z_d, norm=norm, heads=2)
    check(dr.terms(z, y, head), want, z, *dr.parameters(), *head.parameters())


@pytest.mark.parametrize("norm", ["post", "pre", "eq13"])
@pytest.mark.parametrize("exclude_self", [False, True])
def test_pool_equals_the_formula(norm: Any, exclude_self: bool) -> None:
    dr, head = built(norm=norm, degrade="pool", inner=4, exclude_self=exclude_self, pool_size=2), classifier()
    z, y = latents().requires_grad_(), labels()
    torch.manual_seed(5)
    omega = RandomPool(2, exclude_self=exclude_self).draw(N)

    def mix(_: Tensor, context: Tensor) -> Tensor:
        return torch.stack([(context[a] + context[b]) / 2 for a, b in omega.tolist()])

    z_d = oracles.layer(dr.degradation, z, z, mix, norm=norm)
    want = expected(dr, z, torch.eye(CLASSES).double()[y], head, z_d, norm=norm)
    torch.manual_seed(5)
    check(dr.terms(z, y, head), want, z, *dr.parameters(), *head.parameters())


def test_gaussian_equals_the_formula() -> None:
    dr, head = built(degrade="gaussian", sigma=0.5), classifier()
    z, y = latents().requires_grad_(), labels()
    torch.manual_seed(5)
    z_d = z + 0.5 * torch.randn(N, DIM)
    want = expected(dr, z, torch.eye(CLASSES).double()[y], head, z_d, norm="post")
    torch.manual_seed(5)
    check(dr.terms(z, y, head), want, z, *dr.parameters(), *head.parameters())


def test_each_term_has_a_weight_that_may_be_a_schedule() -> None:
    z, y, head = latents(), labels(), classifier()
    plain, weighted = built(), built(original=0.5, degraded=linear(0, 4), restored=lambda step: 1 + step)
    weighted.load_state_dict(plain.state_dict())
    want = plain.terms(z, y, head)
    for step, factors in ((0, (0.5, 0.0, 1.0)), (3, (0.5, 3.0, 4.0))):
        reglet.set_step(weighted, step, 5)
        found = weighted.terms(z, y, head)
        for name, factor in zip(("original", "degraded", "restored"), factors, strict=True):
            torch.testing.assert_close(found[name], factor * want[name])
    for name in ("original", "degraded", "restored"):
        with pytest.raises(ValueError, match=f"{name} must be finite and not negative, got -1"):
            LatentDR(DIM, **{name: -1})


def test_the_parts_alone() -> None:
    z, y, head = latents(), labels(), classifier()
    both, d, r = built(), built(parts="D"), built(parts="R")
    d.degradation.load_state_dict(both.degradation.state_dict())
    r.restoration.load_state_dict(both.restoration.state_dict())
    assert d.restoration is None
    assert r.degradation is None
    whole, only_d, only_r = both.terms(z, y, head), d.terms(z, y, head), r.terms(z, y, head)
    assert set(only_d) == {"original", "degraded"}
    assert set(only_r) == {"original", "restored"}
    torch.testing.assert_close(only_d["degraded"], whole["degraded"])
    (restored,) = (CrossEntropy().terms(both.restore(z, z), y, head)["cross_entropy"],)
    torch.testing.assert_close(only_r["restored"], restored)
    assert not torch.allclose(only_r["restored"], whole["restored"])
    with pytest.raises(ValueError, match="parts='D', which has no restoration"):
        d.restore(z, z)


def test_gaussian_restored_alone_restores_noise() -> None:
    """Table 2 has this row apart from the one that is BatchFormer: noise is not learned, so that it can stay."""
    z, y, head = latents(), labels(), classifier()
    dr = built(degrade="gaussian", parts="R")
    torch.manual_seed(5)
    noisy = dr.degrade(z)
    torch.manual_seed(5)
    found = dr.terms(z, y, head)
    assert set(found) == {"original", "restored"}
    torch.testing.assert_close(found["restored"], CrossEntropy().terms(dr.restore(noisy, z), y, head)["cross_entropy"])
    assert not torch.equal(noisy, z)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({}, 12_611_584),
        ({"parts": "D"}, 6_305_792),
        ({"parts": "R"}, 6_305_792),
        ({"degrade": "pool"}, 2_644_672),
        ({"degrade": "pool", "parts": "D"}, 1_059_072),
        ({"degrade": "pool", "parts": "R"}, 1_585_600),
        ({"degrade": "gaussian"}, 6_305_792),
        ({"degrade": "gaussian", "parts": "D"}, 0),
    ],
)
def test_parameter_counts(arguments: Any, count: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in LatentDR(2048, **arguments).parameters()) == count


def test_default_widths() -> None:
    small, large = LatentDR(64), LatentDR(512)
    assert small.restoration.mix.q.out_features == 16
    assert small.restoration.ff[0].out_features == 16
    assert (small.restoration.mix.heads, large.restoration.mix.heads) == (1, 4)
    pooled = {dim: LatentDR(dim, degrade="pool").restoration for dim in (8, 128, 1024)}
    assert {dim: layer.mix.q.out_features for dim, layer in pooled.items()} == {8: 8, 128: 16, 1024: 32}
    assert pooled[128].ff[0].out_features == 16
    assert large.restoration.drop.p == large.restoration.mix.dropout == large.degradation.ff[2].p == 0.5


@pytest.mark.parametrize("norm", ["post", "pre", "eq13"])
def test_permutation_laws(norm: Any) -> None:
    dr, z, turn = built(norm=norm), latents(), torch.tensor([3, 6, 0, 1, 5, 2, 4])
    z_d = dr.degrade(z)
    torch.testing.assert_close(dr.degrade(z[turn]), z_d[turn])
    torch.testing.assert_close(dr.restore(z_d[turn], z[turn]), dr.restore(z_d, z)[turn])
    torch.testing.assert_close(dr.restore(z_d, z[turn]), dr.restore(z_d, z))
    torch.testing.assert_close(dr.restore(z_d[turn], z), dr.restore(z_d, z)[turn])
    assert not torch.allclose(dr.restore(z_d, latents(seed=1)), dr.restore(z_d, z))


@pytest.mark.parametrize("norm", ["post", "pre", "eq13"])
def test_restoring_what_was_not_degraded_is_self_attention(norm: Any) -> None:
    dr, z = built(norm=norm), latents()
    dr.restoration.load_state_dict(dr.degradation.state_dict())
    assert torch.equal(dr.restore(z, z), dr.degrade(z))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_full_width_is_torchs_transformer_layer(norm: Any) -> None:
    dr, z = built(norm=norm, inner=DIM, ff=12, heads=2), latents()
    torchs = nn.TransformerEncoderLayer(DIM, 2, 12, 0.0, norm_first=norm == "pre").double()
    ours = dr.degradation
    with torch.no_grad():
        torchs.self_attn.in_proj_weight.copy_(torch.cat([ours.mix.q.weight, ours.mix.kv.weight]))
        torchs.self_attn.in_proj_bias.copy_(torch.cat([ours.mix.q.bias, ours.mix.kv.bias]))
        for a, b in (
            (torchs.self_attn.out_proj, ours.mix.out),
            (torchs.linear1, ours.ff[0]),
            (torchs.linear2, ours.ff[3]),
            (torchs.norm1, ours.norm1),
            (torchs.norm2, ours.norm2),
        ):
            a.load_state_dict(b.state_dict())
    torch.testing.assert_close(dr.degrade(z), torchs(z[:, None])[:, 0])


def test_weights_start_as_torchs() -> None:
    torch.manual_seed(0)
    ours, torchs = SampleAttention(64, inner=64, heads=4), nn.MultiheadAttention(64, 4)
    bound = torchs.in_proj_weight.abs().max()
    for weight in (ours.q.weight, ours.kv.weight):
        assert 0.98 * bound < weight.abs().max() < 1.02 * bound  # two maxima of thousands of uniform draws
    assert not any(p.any() for p in (ours.q.bias, ours.kv.bias, ours.out.bias))


def test_without_mixing_and_feed_forward_two_norms_are_left() -> None:
    dr, z = built(), latents()
    for module in (dr.degradation.mix.out, dr.degradation.ff[3]):
        for p in module.parameters():
            nn.init.zeros_(p)
    one, two = dr.degradation.norm1, dr.degradation.norm2
    torch.testing.assert_close(dr.degrade(z), oracles.normed(two, oracles.normed(one, z)))


def test_dropout_is_where_it_is_said() -> None:
    """One by one: on attention weights, on both outputs, in the feed-forward; and only in training."""
    z = latents()
    dr = built(dropout=0.5)
    assert not torch.equal(dr.degrade(z), dr.degrade(z))
    assert not torch.equal(dr.restore(z, z), dr.restore(z, z))
    dr.eval()
    assert torch.equal(dr.degrade(z), dr.degrade(z))
    dr.train()
    for switched in ("attention", "outputs", "feed-forward"):
        layer = dr.restoration
        layer.mix.dropout = 0.5 * (switched == "attention")
        layer.drop.p = 0.5 * (switched == "outputs")
        layer.ff[2].p = 0.5 * (switched == "feed-forward")
        assert not torch.equal(dr.restore(z, z), dr.restore(z, z)), switched
    layer.ff[2].p = 0.0
    assert torch.equal(dr.restore(z, z), dr.restore(z, z))


def test_the_degraded_term_has_a_floor_and_reaches_it() -> None:
    z, y = latents(), labels()
    average = torch.eye(CLASSES).double()[y].mean(0)
    floor = -(average * average.log()).sum()
    torch.testing.assert_close(entropy(torch.eye(CLASSES).double()[y]), floor)
    for seed in range(20):
        assert built(seed=seed).terms(z, y, classifier(seed))["degraded"] > floor

    def constant(rows: Tensor) -> Tensor:
        return average.log().expand(len(rows), -1) + 3

    torch.testing.assert_close(built().terms(z, y, constant)["degraded"], floor)


def test_floor_with_classes_that_are_absent() -> None:
    assert entropy(torch.eye(3)[torch.tensor([1, 1])]) == 0


def test_gradient_of_the_degraded_term() -> None:
    z, y, kept = latents(), labels(), []

    def head(rows: Tensor) -> Tensor:
        kept.append((10 * rows[:, :CLASSES]).detach().requires_grad_())
        return kept[-1]

    built().terms(z, y, head)["degraded"].backward()
    (logits,) = kept
    own, rest = logits.grad[N : 2 * N], torch.cat([logits.grad[:N], logits.grad[2 * N :]])
    average = torch.eye(CLASSES).double()[y].mean(0)
    torch.testing.assert_close(own, (logits[N : 2 * N].softmax(1) - average) / N)
    assert not rest.any()


@pytest.mark.parametrize(
    "arguments", [{}, {"degrade": "pool"}, {"degrade": "gaussian"}, {"parts": "D"}, {"parts": "R"}]
)
def test_one_call_of_the_head_and_gradients_for_all(arguments: Any) -> None:
    dr, head, sizes = built(ff=6, **arguments), classifier(), []
    z = latents().requires_grad_()

    def counted(rows: Tensor) -> Tensor:
        sizes.append(len(rows))
        return head(rows)

    value = dr(z, labels(), counted)
    assert sizes == [N * len(dr.terms(z, labels(), head))]
    value.backward()
    for name, p in [("z", z), *dr.named_parameters(), *head.named_parameters()]:
        assert p.grad is not None, name
        assert p.grad.any(), name


@pytest.mark.parametrize("degrade", ["attention", "pool", "gaussian"])
def test_is_a_module_like_any_other(degrade: Any) -> None:
    """Module.apply, to and state_dict work: nothing inside is a module that means something else by these names."""
    dr = LatentDR(DIM, degrade=degrade)
    dr.apply(lambda m: nn.init.zeros_(m.weight) if isinstance(m, nn.Linear) else None)
    assert not dr.restoration.mix.q.weight.any()
    dr.load_state_dict(LatentDR(DIM, degrade=degrade).state_dict())
    assert dr.restoration.mix.q.weight.any()
    assert dr.double()(latents(), labels(), classifier()).dtype == torch.float64


def test_the_scalar_is_the_sum() -> None:
    dr, z, y, head = built(), latents(), labels(), classifier()
    torch.testing.assert_close(dr(z, y, head), sum(dr.terms(z, y, head).values()))
    assert isinstance(dr, LatentLoss)


def test_a_classifier_of_its_own() -> None:
    own, head = classifier(7), classifier()
    dr = built()
    apart = LatentDR(DIM, dropout=0.0, classifier=own).double()
    apart.load_state_dict({**dr.state_dict(), **{f"classifier.{k}": v for k, v in own.state_dict().items()}})
    z, y = latents(), labels()
    shared, found = dr.terms(z, y, own), apart.terms(z, y, head)
    torch.testing.assert_close(found["degraded"], shared["degraded"])
    torch.testing.assert_close(found["restored"], shared["restored"])
    torch.testing.assert_close(found["original"], dr.terms(z, y, head)["original"])
    (found["degraded"] + found["restored"]).backward()
    assert head.weight.grad is None
    assert own.weight.grad.any()


def test_mixup_labels() -> None:
    dr, head, y = built(), classifier(), labels()
    mixup = Mixup()
    z, soft = mixup.mix(latents(), y, mixup.draw(N, torch.Generator().manual_seed(0)), num_classes=CLASSES)
    z_d, z_r = dr.degrade(z), dr.restore(dr.degrade(z), z)
    found = dr.terms(z, soft, head)
    torch.testing.assert_close(found["original"], oracles.cross_entropy(head(z), soft), rtol=1e-6, atol=0)
    average = soft.mean(0).expand_as(soft)
    torch.testing.assert_close(found["degraded"], oracles.cross_entropy(head(z_d), average), rtol=1e-6, atol=0)
    torch.testing.assert_close(found["restored"], oracles.cross_entropy(head(z_r), soft), rtol=1e-6, atol=0)


@pytest.mark.parametrize("criterion", [BalancedSoftmax([30, 20, 6]), BCL([30, 20, 6])])
def test_balanced_softmax_in_all_terms(criterion: Any) -> None:
    z, y, head = latents(), labels(), classifier()
    plain, balanced = built(), built(criterion=criterion.double())
    log_counts = torch.tensor([30.0, 20.0, 6.0]).double().log()
    want = plain.terms(z, y, lambda rows: head(rows) + log_counts)
    for name, value in balanced.terms(z, y, head).items():
        # the logs of the counts are kept in float32
        torch.testing.assert_close(value, want[name], rtol=1e-6, atol=0)


def test_balanced_softmax_makes_constant_logits_the_degraded_optimum() -> None:
    y = torch.tensor([0] * 4 + [1] * 2 + [2])
    dr = built(criterion=BalancedSoftmax([40, 20, 10]))
    found = dr.terms(latents(), y, lambda rows: rows.new_zeros(len(rows), CLASSES))["degraded"]
    torch.testing.assert_close(found, entropy(torch.eye(CLASSES).double()[y]), rtol=1e-6, atol=0)


def test_prediction_is_the_plain_models() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(5, DIM), nn.Tanh())
    model = nn.Sequential(encoder, nn.Linear(DIM, CLASSES))
    x = torch.randn(N, 5)
    before, keys = model(x), list(model.state_dict())
    dr = LatentDR(DIM)
    dr(encoder(x), labels(), model[1]).backward()
    assert torch.equal(model(x), before)
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("degrade", ["attention", "pool", "gaussian"])
@pytest.mark.parametrize("norm", ["post", "pre", "eq13"])
def test_gradcheck(degrade: Any, norm: Any) -> None:
    dr, head, y = built(degrade=degrade, norm=norm), classifier(), labels(4)

    def value(z: Tensor) -> Tensor:
        torch.manual_seed(0)
        return dr(z, y, head)

    assert torch.autograd.gradcheck(value, latents(4).requires_grad_())


def test_a_batch_of_one_has_the_original_term_alone() -> None:
    dr, head, z, y = built(), classifier(), latents(1), labels(1)
    with pytest.warns(UserWarning, match="batch of one, which has nothing to mix"):
        found = dr.terms(z, y, head)
    assert found["degraded"] == found["restored"] == 0
    torch.testing.assert_close(found["original"], oracles.cross_entropy(head(z), torch.eye(CLASSES).double()[y]))


def test_all_labels_alike() -> None:
    dr, z = built(), latents()
    found = dr.terms(z, torch.ones(N, dtype=torch.int64), classifier())
    assert all(torch.isfinite(value) for value in found.values())


def test_bad_input() -> None:
    dr, z, y, head = built(), latents(), labels(), classifier()
    with pytest.raises(ValueError, match=r"latents of LatentDR must be .* \(_, 8\) .* got shape \(7, 6\)"):
        dr(z[:, :6], y, head)
    with pytest.raises(ValueError, match=r"shape \(7, 8, 1\)"):
        dr(z[..., None], y, head)
    with pytest.raises(ValueError, match=r"shape \(0, 8\)"):
        dr(z[:0], y[:0], head)
    with pytest.raises(ValueError, match="latents have width 8, and the head takes 6"):
        dr(z, y, nn.Linear(6, CLASSES).double())
    with pytest.raises(ValueError, match=r"logits \(n, classes\) of latents \(21, 8\), got \(21,\)"):
        dr(z, y, lambda rows: rows.sum(1))
    with pytest.raises(ValueError, match=r"7 class numbers from 0 to 2.* got values 0 to 3"):
        dr(z, torch.tensor([0, 1, 2, 3, 0, 1, 2]), head)
    with pytest.raises(ValueError, match=r"class numbers from 0 to 2.* got values -1 to 1"):
        dr(z, y - 1, head)
    with pytest.raises(ValueError, match=r"labels must be 7 class numbers .* got shape \(6,\)"):
        dr(z, y[:6], head)
    with pytest.raises(ValueError, match=r"rows of probabilities \(7, 3\); got torch.float32 of shape \(7, 2\)"):
        dr(z, torch.rand(7, 2), head)
    for wrong in ({"inner": 6, "heads": 4}, {"ff": 0}, {"dropout": 1.0}, {"pool_size": 0, "degrade": "pool"}):
        with pytest.raises(ValueError):
            LatentDR(DIM, **wrong)


def test_latents_that_overflow_are_refused() -> None:
    """Layer norm and attention square the latents, which would end in NaN or, worse, in constants."""
    with pytest.raises(ValueError, match=r"power of 2 overflows torch.float32 for input of up to 1e\+30"):
        LatentDR(DIM)(torch.full((N, DIM), 1e30), labels(), nn.Linear(DIM, CLASSES))
    broken = torch.full((N, DIM), float("nan"))
    assert LatentDR(DIM)(broken, labels(), nn.Linear(DIM, CLASSES)).isnan()


def test_eq13_refuses_latents_whose_gradient_would_overflow() -> None:
    """No norm follows its mixing, so a gradient through both layers is of the fifth power: NaN at 1e10 in float32."""
    z = torch.randn(1, DIM).expand(N, DIM)
    with pytest.raises(ValueError, match="power of 5 overflows"):
        LatentDR(DIM, norm="eq13")(1e10 * z, labels(), nn.Linear(DIM, CLASSES))
    z = (1e4 * z).requires_grad_()
    LatentDR(DIM, norm="eq13")(z, labels(), nn.Linear(DIM, CLASSES)).backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_arguments_that_a_choice_does_not_need_are_checked_too() -> None:
    for wrong in ({"sigma": math.nan}, {"degrade": "gaussian", "parts": "D", "dropout": math.nan}):
        with pytest.raises(ValueError, match="got nan"):
            LatentDR(DIM, **wrong)


def test_unknown_words() -> None:
    """Past the type checks that the tests run with and a user's program does not."""
    for wrong, message in (
        ({"degrade": "pooling"}, "degrade must be one of attention, pool, gaussian; got 'pooling'"),
        ({"parts": "both"}, r"parts must be one of D\+R, D, R; got 'both'"),
    ):
        with pytest.raises(Exception, match=message) as caught:
            _unchecked(LatentDR.__init__)(LatentDR.__new__(LatentDR), DIM, **wrong)
        assert caught.type is ValueError
    with pytest.raises(ValueError, match="norm must be one of post, pre, eq13; got 'both'"):
        _unchecked(Layer.__init__)(Layer.__new__(Layer), DIM, RandomPool(), ff=2, norm="both")


def _unchecked(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function
