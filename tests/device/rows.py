"""What the laws of tests/device/test_laws.py are swept over: one row for each thing that runs on a device.

A row is a function of a device that builds the thing there and gives back one step of it: a call without arguments
whose result is a tensor, a number, or a dictionary or list of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from tests.contracts import ROWS as LOSSES
from tests.contracts import Row as LossRow
from tests.contracts import expected
from tests.methods import equivariant_nets, nets
from tests.methods import test_equivariant_family as family
from tests.probes.blobs import blobs
from tests.test_contracts import gaussian
from torch import Tensor, nn

import reglet
from reglet import diagnostics, groups, latent, probes, tails, views
from reglet.backbones import vit_mini
from reglet.diagnostics import robustness
from reglet.method import Batch, Method
from reglet.methods import Equivariant, NextEmbedding, Predictive, Regularized, domains
from reglet.types import Terms, total
from reglet.views.series import SeriesView

Step = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    name: str
    build: Callable[[torch.device], Step]
    trains: bool  # a part of a training step: no read, and no copy but that of `copies` tensors
    copies: int = 0
    tolerance: float = 1e-5  # float32 in another order of summation
    random: bool = False  # draws on the device itself, so its values are its own
    waits: str = ""  # the one operation that makes the host wait, on CUDA too


def to(x: Any, device: torch.device, dtype: torch.dtype | None = torch.float32) -> Any:
    if isinstance(x, Tensor):
        return x.to(device, dtype if x.is_floating_point() else None)
    if isinstance(x, nn.Module):
        return x.to(device, dtype)
    if isinstance(x, (list, tuple)):
        return type(x)(to(part, device, dtype) for part in x)
    if isinstance(x, Batch):
        return replace(
            x,
            views=to(list(x.views), device, dtype),
            labels=to(x.labels, device),
            domain=to(x.domain, device),
            actions=to(x.actions, device, dtype),
        )
    return x


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows() -> list[Row]:
    return [*_losses(), *_blocks(), *_latent(), *_groups(), *_views(), *_methods(), *_probes(), *_diagnostics()]


# ---- losses --------------------------------------------------------------------------------------------------------


def _losses() -> list[Row]:
    """Fewer samples than features and more: some losses have a formula for each."""
    made = []
    for row in LOSSES:
        for size in ((2, 40, 12), (3, 8, 24)):
            if not row.name.startswith(("smi", "ntxent", "barlow", "vicreg")) and size[0] == 3:
                continue
            name, waits = f"losses/{row.name}-{size[2]}", "_linalg_eigh" if row.name.startswith("mmcr") else ""
            made.append(Row(name, partial(_loss, row, size), trains=True, random=row.sliced, waits=waits))
    return made


def _loss(row: LossRow, size: tuple[int, int, int], device: torch.device) -> Step:
    loss = row.build().to(device)
    z = gaussian(*size).float().to(device).requires_grad_()

    def step() -> dict[str, Tensor]:
        terms = loss.terms(z)
        return {**terms, "gradient": torch.autograd.grad(total(terms), z)[0]}

    return step


# ---- blocks and attach ---------------------------------------------------------------------------------------------


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    )


def _blocks() -> list[Row]:
    made = [
        Row("blocks/sim", partial(_sim, lambda: reglet.SIM()), trains=True, copies=1),
        Row("blocks/sim-plain", partial(_sim, lambda: reglet.SIM.plain()), trains=True, copies=1),
    ]
    for name, options in {
        "patch-ntxent": {},
        "patch-ntxent-one-way": {"symmetric": False},
    }.items():
        made.append(Row(f"blocks/{name}", partial(_patch_ntxent, options), trains=True))
    for sampling in ("per_sample", "salient"):
        sim = partial(reglet.SIM, sampling=sampling)
        made.append(Row(f"blocks/sim-{sampling}", partial(_sim, sim), trains=True, copies=1))
    for kind in (reglet.Cosine, reglet.L2, reglet.CKA, reglet.Gram):
        made.append(Row(f"blocks/{kind.__name__}", partial(_taught, kind), trains=True))
    for on in ("pooled", "tokens"):
        made.append(Row(f"attach/features-{on}", partial(_features, on), trains=True, copies=1, random=True))
    return made


def _features(on: Any, device: torch.device) -> Step:
    """A regularizer of views on the features of two blocks."""
    net, x = _net().to(device), torch.randn(4, 3, 12, 12, generator=seeded()).to(device)
    attached = reglet.attach(net, ["0", "1"], reglet.VISReg(slices=8), on=on, rho=0.5)

    def step() -> dict[str, Tensor]:
        net.zero_grad()
        loss = net(x).square().mean() + attached.loss()
        loss.backward()
        return {"loss": loss.detach(), "gradient": next(net.parameters()).grad}

    return step


def _taught(kind: Callable[[], nn.Module], device: torch.device) -> Step:
    """Two blocks compared, and one of them with a frozen teacher's."""
    net, teacher = _net().to(device), _net().to(device)
    x = torch.randn(4, 3, 12, 12, generator=seeded()).to(device)
    own = reglet.attach(net, "0", kind(), to="1", name="own")
    other = reglet.attach(net, "1", kind(), teacher=teacher, to="0", name="other")

    def step() -> dict[str, Tensor]:
        net.zero_grad()
        loss = net(x).square().mean() + own.loss() + other.loss()
        loss.backward()
        return {"loss": loss.detach(), "gradient": next(net.parameters()).grad}

    return step


def _sim(sim: Callable[[], nn.Module], device: torch.device) -> Step:
    net = _net().to(device)
    x = torch.randn(4, 3, 12, 12, generator=seeded()).to(device)
    torch.manual_seed(1)
    attached = reglet.attach(net, ["0", "1"], sim())

    def step() -> dict[str, Tensor]:
        net.zero_grad()
        loss = net(x).square().mean() + attached.loss()
        loss.backward()
        return {"loss": loss.detach(), "gradient": next(net.parameters()).grad}

    return step


def _patch_ntxent(options: dict[str, Any], device: torch.device) -> Step:
    loss = reglet.PatchNTXent(**options)
    z, target = (torch.randn(4, 9, 6, generator=seeded(s)).to(device).requires_grad_() for s in (0, 1))

    def step() -> dict[str, Tensor]:
        value = loss(z, target)
        return {"loss": value, "gradient": torch.autograd.grad(value, z)[0]}

    return step


# ---- latents, tails ------------------------------------------------------------------------------------------------


def _latent() -> list[Row]:
    kinds: dict[str, Callable[[], Any]] = {
        "latentdr": lambda: latent.LatentDR(dim=8, heads=2),
        "batchformer": lambda: latent.BatchFormer(8, heads=2, dropout=0.0),
        "noisy": lambda: latent.NoisyLatents(8),
        "cross-entropy": lambda: latent.CrossEntropy(label_smoothing=0.1),
        "balanced": lambda: latent.CrossEntropy(criterion=tails.BalancedSoftmax([5, 3, 4])),
        "adjusted": lambda: latent.CrossEntropy(criterion=tails.LogitAdjustment([5, 3, 4])),
    }
    made = [
        Row(f"latent/{name}", partial(_latent_loss, kind), trains=True, random=name == "noisy", copies=name == "noisy")
        for name, kind in kinds.items()
    ]
    operators: dict[str, Callable[[], Any]] = {
        "mixup": lambda: latent.Mixup(1.0),
        "cutmix": lambda: latent.CutMix(1.0),
        "mixstyle": lambda: latent.MixStyle(),
        "noise": lambda: latent.GaussianNoise(6),
        "pool": lambda: latent.RandomPool(3),
    }
    for name, kind in operators.items():
        made.append(Row(f"latent/{name}", partial(_operator, name, kind), trains=True, copies=1))
    made.append(Row("latent/mixup-labels", partial(_soft, latent.Mixup(1.0)), trains=True, copies=1))
    made.append(Row("latent/cutmix-labels", partial(_soft, latent.CutMix(1.0)), trains=True, copies=1))
    made.append(Row("latent/manifold-mixup", _manifold_mixup, trains=True, copies=2))  # to mix x, and to mix y
    made.append(Row("tails/bcl", _bcl, trains=True))
    return made


def _manifold_mixup(device: torch.device) -> Step:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).to(device)
    mixing = latent.ManifoldMixup(net, ["0", "1"])
    x, y = torch.randn(6, 6, generator=seeded()).to(device), (torch.arange(6) % 3).to(device)

    def step() -> list[Tensor]:
        p = mixing.draw(6, seeded(1))
        return [mixing(x, p), mixing.labels(y, p, num_classes=3)]

    return step


def _latent_loss(kind: Callable[[], nn.Module], device: torch.device) -> Step:
    torch.manual_seed(0)
    loss, head = kind().to(device), nn.Linear(8, 3).to(device)
    z, y = torch.randn(12, 8, generator=seeded()).to(device).requires_grad_(), (torch.arange(12) % 3).to(device)

    def step() -> dict[str, Tensor]:
        terms: Terms = loss.terms(z, y, head)
        return {**terms, "gradient": torch.autograd.grad(total(terms), z)[0]}

    return step


def _operator(name: str, kind: Callable[[], Any], device: torch.device) -> Step:
    """Drawn on the host; what was drawn goes to the device in one copy at most."""
    operator = kind()
    images = name in ("cutmix", "mixstyle")
    x = torch.randn(*((6, 3, 8, 8) if images else (6, 6)), generator=seeded()).to(device)
    return lambda: operator.apply(x, operator.draw(6, seeded(1)))


def _soft(operator: Any, device: torch.device) -> Step:
    x, y = torch.randn(6, 3, 8, 8, generator=seeded()).to(device), (torch.arange(6) % 3).to(device)
    return lambda: list(operator.mix(x, y, operator.draw(6, seeded(1)), num_classes=3))


def _bcl(device: torch.device) -> Step:
    torch.manual_seed(0)
    loss = tails.BCL([5, 3, 4]).to(device)
    u, logits, prototypes = (torch.randn(*s, generator=seeded()).to(device) for s in ((3, 12, 8), (12, 3), (3, 8)))
    y = (torch.arange(12) % 3).to(device)
    return lambda: loss.terms(logits, y, u, prototypes)


# ---- groups and views ----------------------------------------------------------------------------------------------


def _groups() -> list[Row]:
    return [
        Row("groups/act", _act, trains=True, copies=1),
        Row("groups/act-on-tokens", _act_on_tokens, trains=True, copies=1),
        Row("groups/symmetry", _symmetry, trains=True, copies=1),
        Row("groups/align", _align, trains=True, copies=1),
    ]


def _align(device: torch.device) -> Step:
    y, g = torch.randn(8, 16, 3, generator=seeded()).to(device), groups.D4.every()
    return lambda: groups.align(y, g, grid=(4, 4), to=(6, 6))


def _act(device: torch.device) -> Step:
    x, g = torch.randn(8, 2, 4, 4, generator=seeded()).to(device), groups.D4.every()
    return lambda: groups.act(x, g)


def _act_on_tokens(device: torch.device) -> Step:
    y, g = torch.randn(8, 16, 3, generator=seeded()).to(device), groups.D4.every()
    return lambda: groups.act_on_tokens(y, g, grid=(4, 4))


def _symmetry(device: torch.device) -> Step:
    x = torch.rand(6, 3, 16, 16, generator=seeded()).to(device)
    fitted = groups.Symmetry().fitted((16, 16), patch=4)
    return lambda: fitted.apply(x, fitted.draw(6, seeded(1)))


EVERYTHING = views.View(
    16,
    views.ResizedCrop((0.3, 1.0), interpolation="bicubic"),
    flip=0.5,
    rotate=20.0,
    turns=True,
    jitter=views.ColorJitter(),
    gray=0.3,
    blur=views.Blur(5),
    solarize=0.3,
)


def _views() -> list[Row]:
    """What was drawn for a view is one copy, whatever was drawn."""
    made = []
    for name in sorted(set(views.POLICIES) - {"lejepa", "sigreg", "ser", "barlow", "vicreg"}):  # names of another
        policy = views.policy(name, size=16)
        made.append(Row(f"views/{name}", partial(_policy, policy), trains=True, copies=len(policy.views)))
    made.append(
        Row("views/everything", partial(_policy, views.Policy((EVERYTHING,), n_global=1)), trains=True, copies=1)
    )
    series = SeriesView(length=12, crop=(0.5, 1.0), gain=2.0, sigma=0.1, time=0.25, band=0.4)
    made.append(Row("views/series", partial(_series, series), trains=True, copies=2))  # the draw, and the noise
    return made


def _policy(policy: views.Policy, device: torch.device) -> Step:
    images = torch.randint(256, (6, 3, 20, 20), dtype=torch.uint8, generator=seeded()).to(device)
    return lambda: policy.apply(images, policy.draw(6, seeded(1)))


def _series(view: SeriesView, device: torch.device) -> Step:
    x = torch.randn(6, 3, 20, generator=seeded()).to(device)
    return lambda: view.apply(x, view.draw(6, seeded(1)))


# ---- methods -------------------------------------------------------------------------------------------------------


def _methods() -> list[Row]:
    made = [
        Row(
            f"methods/{name}",
            partial(_method, partial(nets.method, name), nets.batch),
            trains=True,
            copies=name == "predictive",  # the masks
        )
        for name in nets.NAMES
    ]
    made.append(Row("methods/next-embedding", partial(_method, _next_embedding, _video), trains=True))
    made.append(
        Row(
            "methods/dino-multi",
            partial(_method, lambda: nets.method("dino"), lambda: nets.batch(sizes=nets.MULTI)),
            True,
        )
    )
    made.append(
        Row(
            "methods/regularized",
            partial(_method, _regularized, nets.batch),
            trains=True,
            copies=1,
        )
    )
    for name in family.NAMES:
        made.append(
            Row(
                f"methods/{name}", partial(_method, partial(family.wrapped, name), partial(family.batch, name)), True, 1
            )
        )
    made.append(Row("methods/equivariant", partial(_method, _equivariant, equivariant_nets.batch), True, 1))
    losses = {
        "erm": domains.ERM,
        "irm": partial(domains.IRM, anneal=0),
        "vrex": partial(domains.VREx, anneal=0),
        "coral": domains.CORAL,
        "mmd": domains.MMD,
        "groupdro": partial(domains.GroupDRO, domains=2),
        "union": lambda: domains.OnUnion(latent.CrossEntropy(label_smoothing=0.1)),
    }
    for name, loss in losses.items():
        made.append(Row(f"domains/{name}", partial(_domain_loss, loss), trains=True))
    return made


def _regularized() -> Method:
    return Regularized(
        nets.method("joint"), "backbone.blocks.*", reglet.SIM(dim=3), weight=0.1, example=nets.batch()
    ).double()


def _equivariant() -> Method:
    share = equivariant_nets.SHARE
    return Equivariant(equivariant_nets.base("vicreg"), fraction=share, layer=2, width=6).double()


def _next_embedding() -> Method:
    torch.manual_seed(3)
    own = {"projector": nets.mlp(nets.DIM, 7, 5), "embedding": 5, "dropout": 0.0}
    step = NextEmbedding(nets.DIM, actions=2, width=8, depth=1, heads=2, **own)
    return Predictive(nets.Net(), reglet.VICReg(), predictor=step)


def _video() -> Batch:
    return Batch([torch.randn(4, 3, 3, 8, 8, generator=seeded())], actions=torch.randn(4, 3, 2, generator=seeded(1)))


def _method(build: Callable[[], Method], batch: Callable[[], Batch], device: torch.device) -> Step:
    """Forward, backward, clipping, AdamW, and what the method does after a step."""
    method, given = to(build().train(), device), to(batch(), device)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], lr=1e-3)

    def step() -> dict[str, Tensor]:
        optimizer.zero_grad()
        terms = method(given)
        total(terms).backward()
        nn.utils.clip_grad_norm_(method.parameters(), 1.0)
        optimizer.step()
        method.after_step(1, 10)
        return {**{key: value.detach() for key, value in terms.items()}, "weight": next(method.parameters()).detach()}

    return step


def _domain_loss(kind: Callable[[], nn.Module], device: torch.device) -> Step:
    torch.manual_seed(0)
    loss, head = kind().to(device), nn.Linear(5, 3).to(device)
    z = [torch.randn(n, 5, generator=seeded(n)).to(device).requires_grad_() for n in (4, 6)]
    y = [(torch.arange(n) % 3).to(device) for n in (4, 6)]

    def step() -> dict[str, Tensor]:
        terms: Terms = loss.terms(z, y, head)
        return {**terms, "gradient": torch.autograd.grad(total(terms), z[0])[0]}

    return step


# ---- probes and diagnostics: no part of a step, so they may read ---------------------------------------------------


def _probes() -> list[Row]:
    few = {"epochs": 2, "rates": (0.1, 1.0)}
    kinds: dict[str, Callable[..., Any]] = {
        "knn": probes.knn_votes,
        "linear": lambda *a: probes.linear_probe(*a, strengths=(0.1, 1.0))._asdict(),
        "ridge": lambda *a: probes.ridge_probe(*a)._asdict(),
        "linear-sgd": lambda *a: probes.linear_sgd_probe(*a, **few)._asdict(),
        "mlp": lambda *a: probes.mlp_probe(*a, width=8, epochs=2, rates=(0.01,))._asdict(),
        "few-label": lambda *a: probes.few_label_probe(*a, per_class=3, draws=2)._asdict(),
        "few-label-correct": lambda *a: probes.few_label_correct(*a, per_class=3, draws=2),
    }
    made = [Row(f"probes/{name}", partial(_probe, kind), trains=False, tolerance=1e-3) for name, kind in kinds.items()]
    made.append(Row("probes/segmentation", _segmentation, trains=False, tolerance=1e-3))
    made.append(Row("probes/fine-tune", _fine_tune, trains=False, tolerance=1e-3))
    made.append(Row("probes/last-blocks", _last_blocks, trains=False))
    return made


def _probe(kind: Callable[..., Any], device: torch.device) -> Step:
    x, y = blobs(60, 6)
    given = [part.to(device) for part in (x[:40], y[:40], x[40:], y[40:])]
    return lambda: kind(*given[:3]) if kind is probes.knn_votes else kind(*given)


def _segmentation(device: torch.device) -> Step:
    tokens, masks = torch.randn(6, 4, 5, generator=seeded()).to(device), torch.randint(3, (6, 8, 8), generator=seeded())
    masks = masks.to(device)
    return lambda: probes.segmentation_probe(
        tokens[:4], masks[:4], tokens[4:], masks[4:], grid=(2, 2), epochs=2
    )._asdict()


def _fine_tune(device: torch.device) -> Step:
    x, y = torch.randint(256, (12, 3, 16, 16), dtype=torch.uint8, generator=seeded()), torch.arange(12) % 3
    torch.manual_seed(0)
    net = nets.Net().to(device)

    def step() -> dict[str, Any]:
        score = probes.fine_tune(net, x[:9], y[:9], x[9:], y[9:], size=16, epochs=1, batch=4)
        return {"accuracy": score.accuracy, "logits": score.logits}

    return step


def _last_blocks(device: torch.device) -> Step:
    torch.manual_seed(0)
    net, x = vit_mini(size=16).to(device).eval(), torch.randn(2, 3, 16, 16, generator=seeded()).to(device)
    return lambda: probes.last_blocks(net, x, blocks=2)


def _diagnostics() -> list[Row]:
    def on(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[torch.device], Step]:
        def build(device: torch.device) -> Step:
            given = [torch.randn(*shape, generator=seeded(i)).to(device) for i, shape in enumerate(shapes)]
            return lambda: function(*given)

        return build

    def labels(n: int, like: Tensor, classes: int = 3) -> Tensor:
        return (torch.arange(n) % classes).to(like.device)

    n, v, m = (30, 6), (2, 30, 6), (3, 5, 4, 4)
    kinds = {
        "alignment": on(diagnostics.alignment, v),
        "class-alignment": on(lambda z: diagnostics.class_alignment(z, labels(30, z)), n),
        "uniformity": on(diagnostics.uniformity, n),
        "alpha-req": on(diagnostics.alpha_req, n),
        "batch-share": on(diagnostics.batch_share, v),
        "mode-gap": on(diagnostics.mode_gap, n, n),
        "cka": on(diagnostics.linear_cka, n, n),
        "cka-debiased": on(lambda x, y: diagnostics.linear_cka(x, y, debiased=True), n, n),
        "covariance-rank": on(diagnostics.covariance_rank, n),
        "relative-spread": on(diagnostics.relative_spread, n),
        "same-image-auc": on(diagnostics.same_image_auc, v),
        "energy-maps": on(diagnostics.energy_maps, m),
        "pca-maps": on(lambda x: diagnostics.pca_maps(x).abs(), m),
        "lidar": on(diagnostics.lidar, (4, 20, 6)),
        "nearest": on(lambda z: diagnostics.nearest(z, z, k=3, own=True), n),
        "across-domains": on(
            lambda z: list(diagnostics.neighbours_across_domains(z, labels(30, z), labels(30, z, 2), k=3)), n
        ),
        "rankme": on(diagnostics.rankme, n),
        "cross-correlation": on(diagnostics.cross_correlation, n, n),
        "redundancy": on(lambda x, y: diagnostics.redundancy_to_alignment(diagnostics.cross_correlation(x, y)), n, n),
        "explained-variance": on(diagnostics.explained_variance, n),
        "feature-std": on(diagnostics.feature_std, n),
        "gradient-norms": _gradient_norms,
        "layer-maps": _layer_maps,
        "robustness": _robustness,
        "stability": _stability,
    }
    return [Row(f"diagnostics/{name}", build, trains=False, tolerance=1e-4) for name, build in kinds.items()]


def _gradient_norms(device: torch.device) -> Step:
    w = torch.randn(5, generator=seeded()).to(device).requires_grad_()
    return lambda: diagnostics.gradient_norms({"a": w.square().sum(), "b": w.abs().sum()}, w)


def _layer_maps(device: torch.device) -> Step:
    net, x = _net().eval().to(device), torch.randn(2, 3, 8, 8, generator=seeded()).to(device)
    return lambda: dict(diagnostics.layer_maps(net, ["0", "1"])(x))


def _predict(device: torch.device) -> Callable[[Tensor], Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 4)).to(device)
    return lambda x: net(x.to(device))


def _robustness(device: torch.device) -> Step:
    images = torch.randint(256, (6, 3, 24, 24), dtype=torch.uint8, generator=seeded()).to(device)
    labels = (torch.arange(6) % 4).to(device)
    return lambda: robustness.robustness(_predict(device), images, labels, severities=(3,)).accuracy


def _stability(device: torch.device) -> Step:
    images = torch.randint(256, (4, 3, 24, 24), dtype=torch.uint8, generator=seeded()).to(device)
    labels = (torch.arange(4) % 4).to(device)
    return lambda: robustness.stability(_predict(device), images, labels, frames=3).flip_rate


def oracle(row: LossRow, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A sliced loss on the device, and its formula in float64 at the directions that the device drew."""
    loss = row.build().to(device)
    z = gaussian(2, 40, 12).float()
    want = expected(row, loss, z.to(device)) if device.type == "cpu" else _expected_there(row, loss, z, device)
    return loss.terms(z.to(device)), want


def _expected_there(row: LossRow, loss: Any, z: Tensor, device: torch.device) -> dict[str, Tensor]:
    from tests.contracts import directions

    return row.oracle(z.double(), len(z), directions(loss, z.to(device)).cpu().double())
