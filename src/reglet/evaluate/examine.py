"""Looks at a run, an exported encoder, or any method on images, for the symptoms that `diagnostics.verdict` judges."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from reglet.data import Images, Part
from reglet.diagnostics.batch_dependence import batch_share, mode_gap
from reglet.diagnostics.ranks import rankme
from reglet.diagnostics.training import gradient_norms
from reglet.diagnostics.verdict import Symptoms, Verdict, diagnose
from reglet.doctor import same_slices
from reglet.engine import checkpoint
from reglet.engine.build import Parts, build_parts
from reglet.engine.config import Config
from reglet.engine.feed import ViewPolicy
from reglet.engine.order import VIEWS, generator
from reglet.engine.run_folder import CHECKPOINT, RunError, read_run, write_json
from reglet.evaluate.compute import Compute, compute
from reglet.evaluate.extract import CPU, extract
from reglet.evaluate.source import is_run, open_source
from reglet.export import CARD
from reglet.losses.base import OnViews
from reglet.method import Batch, Method, innermost
from reglet.methods import JointEmbedding, Predictive

Net = Callable[[Tensor], Tensor]
REPORT = "doctor.json"
BATCHES, ANCHORS = 6, 8  # each of so many samples is embedded in so many batches, among other mates in each


def examine(
    run: str | Path,
    *,
    data: str = "",
    images: int = 1000,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    seed: int = 0,
    pretrained: bool = True,
    size: int = 0,
    says: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """The verdict on `run`.  If it is a run or an exported encoder, doctor.json in its directory has it, too.

    run: the directory of a run or of an exported encoder, timm/NAME, or anything else that `open_source` takes;
        `pretrained` and `size` go there, too.  `says` is told how images are prepared.
    data: as for pretraining.  The default is the run's own data: its test images, if it has any.
    images: how many to look at, at most.
    """
    where = compute(accelerator=accelerator, devices=devices, precision=precision)
    folder = Path(run)
    if is_run(folder):
        config, parts, encoder = _load(folder, data)
        chosen = _some(parts.images if parts.test is None else parts.test, images, seed)
        found = look(
            parts.method,
            chosen,
            parts.policy,
            features=extract(_Encoder(encoder), chosen, parts.preprocess, finite=False, compute=where),
            batch=config.batch,
            norm_batch=_norm_batch(config),
            compute=where,
            seed=seed,
        )
        slices = same_slices(parts.method)
        found = replace(
            found,
            same_slices=slices if config.devices * config.nodes > 1 else None,
            batch=_loss_batch(config, parts.method),
            steps=checkpoint.read_about(folder / CHECKPOINT)["step"],
        )
        if config.command == "train":
            found = replace(found, classes=len(chosen.classes or ()))
    else:
        source = open_source(run, pretrained=pretrained, size=size)
        if not data and source.rows is None:
            raise RunError(f"{run} has no data of its own: give data=")
        says(source.introduction())
        chosen = _some(source.open(data), images, seed)
        found = Symptoms(extract(source.net, chosen, source.prepare, finite=False, compute=where))
    verdict = diagnose(found)
    if verdict.numbers:  # it judges nothing, but many people know it
        verdict = replace(verdict, numbers=verdict.numbers | {"features.rankme": rankme(found.features)})
    about = {"verdict": verdict.name, "exit_code": verdict.exit_code, "data": chosen.name, "seed": seed}
    if is_run(folder) or (folder / CARD).exists():
        write_json(folder / REPORT, about | asdict(verdict))
    return verdict


@torch.no_grad()
def look(
    method: Method,
    images: Images,
    policy: ViewPolicy,
    *,
    features: Float[Tensor, "n d"],
    batch: int,
    norm_batch: int | None = None,
    compute: Compute = CPU,
    seed: int = 0,
) -> Symptoms:
    """The symptoms of a method: of its features, and where it compares views, of its projector, loss and batch norms.

    features: of `images`, prepared as for a probe.  batch: samples in a step.  norm_batch: samples over which a batch
    norm takes its statistics, the batch unless given.
    """
    found = Symptoms(features, batch=batch)
    method = compute.copies(method)[0]  # type: ignore[assignment]
    net, inner = _embedder(method), innermost(method)
    if isinstance(inner, Predictive):
        return replace(found, gradients=_on_the_encoder(inner, images, policy, batch=batch, compute=compute, seed=seed))
    if policy.n_global < 2:
        return found
    with compute.mixed():
        views = compute.cast(_two_views(policy, images, compute, seed))
        found = replace(found, views=torch.stack([_in_parts(method.encode, v) for v in views]))
        if net is None:
            return found
        z = torch.stack([_in_parts(net, v) for v in views])
    if not bool(torch.isfinite(z).all()):
        return replace(found, embeddings=z)
    with compute.mixed():
        share, gap = _batch_norm(method, views, z, size=norm_batch or batch, seed=seed)
    return replace(found, embeddings=z, gradients=_gradients(method, z[:, :batch]), batch_share=share, mode_gap=gap)


def _load(folder: Path, data: str) -> tuple[Config, Parts, Method]:
    """The run's configuration, its parts with the weights of its checkpoint, and the method whose `encode` counts."""
    config, stored = read_run(folder)
    if not (folder / CHECKPOINT).exists():
        raise RunError(f"the run in {folder} has no checkpoint yet")
    tensors, _ = checkpoint.read(folder / CHECKPOINT)
    size = stored["resolved"]["size"] if data else config.size  # other images need not have the size of the run's own
    parts = build_parts(
        replace(config, init_from="", pretrained=False, resume=False, size=size, data=data or config.data)
    )
    averaged = checkpoint.part(tensors, "ema.module.")
    encoder = deepcopy(parts.method) if averaged else parts.method
    try:
        checkpoint.load_module(parts.method, checkpoint.part(tensors, "method."))
        if averaged:
            checkpoint.load_module(encoder, averaged)
    except RuntimeError as error:
        lines = " ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise RunError(f"the checkpoint in {folder} is not of what its configuration builds: {lines[:300]}") from error
    return config, parts, encoder.eval()


def _some(pool: Images, most: int, seed: int) -> Part:
    if most < 2 or len(pool) < 2:
        raise ValueError(f"the doctor looks at two images or more; got images={most}, and {pool.name} has {len(pool)}")
    index = torch.randperm(len(pool), generator=generator(seed, VIEWS))[:most].sort().values
    return Part(pool, index, name=f"{len(index)} of {len(pool)}")


class _Encoder(nn.Module):
    """A method's `encode` as a module."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, x: Tensor) -> Tensor:
        return self.method.encode(x)


def _two_views(policy: ViewPolicy, images: Images, compute: Compute, seed: int) -> Float[Tensor, "2 n c h w"]:
    """The first two global views of each image, drawn as training draws them."""
    draws = policy.draw(len(images), generator(seed, VIEWS, 1))
    rows = []
    for part in torch.arange(len(images)).split(256):
        taken = [draw.take(slice(int(part[0]), int(part[-1]) + 1)) for draw in draws]
        rows.append(torch.stack(policy.apply(compute.take(images.batch(part)), taken)[:2]))
    return torch.cat(rows, 1)


def _embedder(method: Method) -> Net | None:
    """Images -> what the loss compares; None where that is no embedding (prototypes, classes)."""
    inner = innermost(method)
    head = getattr(inner, "projector", None)
    return (lambda x: head(inner.encode(x))) if isinstance(head, nn.Module) else None


def _in_parts(net: Net, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
    return torch.cat([net(part).float() for part in x.split(256)])


def _gradients(method: Method, z: Float[Tensor, "2 n d"]) -> dict[str, float] | None:
    inner = innermost(method)
    if not isinstance(inner, JointEmbedding):
        return None
    with torch.enable_grad():
        z = z.clone().requires_grad_()
        return gradient_norms(inner.objective(list(z), n_global=2), z)


def _on_the_encoder(
    method: Predictive, images: Images, policy: ViewPolicy, *, batch: int, compute: Compute, seed: int
) -> dict[str, float]:
    """Of each term, with respect to the encoder's weights: prediction and regularizer see different tensors."""
    some = torch.arange(min(batch, len(images)))
    draws = policy.draw(len(some), generator(seed, VIEWS, 1))
    views = [compute.cast(view) for view in policy.apply(compute.take(images.batch(some)), draws)]
    with torch.enable_grad(), compute.mixed():
        terms = method(Batch(views, n_global=policy.n_global, draws=draws))
        return gradient_norms(terms, [p for p in method.backbone.parameters() if p.requires_grad])


def _batch_norm(
    method: Method, views: Float[Tensor, "2 n c h w"], z: Float[Tensor, "2 n d"], *, size: int, seed: int
) -> tuple[float | None, float | None]:
    """How far batch mates, and training mode, decide the embeddings `z`; nothing where there is no batch norm."""
    copied = deepcopy(method).eval()
    norms = [m for m in copied.modules() if isinstance(m, _BatchNorm)]
    net = _embedder(copied)
    n = views.shape[1]
    size = min(size, n // 2)  # so that mates differ from batch to batch
    if not norms or net is None or n < 4 * ANCHORS or size < 2:
        return None, None
    for norm in norms:  # these alone: dropout would pass for the influence of mates
        norm.train()
        norm.momentum = 0.0  # and the running statistics stay
    joint = isinstance(innermost(copied), JointEmbedding)

    def embed(index: Tensor) -> Tensor:
        """The first view's embeddings, both views in one forward where training does so."""
        index = index.to(views.device)
        x = torch.cat([views[0, index], views[1, index]]) if joint else views[0, index]
        return net(x)[: len(index)].float()

    together = max(1, min(ANCHORS, size // 8))  # anchors in one batch are always the same to each other: few of them
    groups = torch.arange(ANCHORS).split(together)
    rows = []
    for b in range(BATCHES):
        others = ANCHORS + torch.randperm(n - ANCHORS, generator=generator(seed, VIEWS, 2, b))[: size - together]
        rows.append(torch.cat([embed(torch.cat([group, others]))[: len(group)] for group in groups]))
    return batch_share(torch.stack(rows)), mode_gap(embed(torch.arange(size)), z[0, :size])


def _norm_batch(config: Config) -> int:
    """Samples over which a batch norm takes its statistics."""
    if config.micro_batch:
        return config.micro_batch
    ranks = 1 if config.sync_batchnorm else config.devices * config.nodes
    return config.batch // ranks // config.accumulate


def _loss_batch(config: Config, method: Method) -> int:
    """Samples that the loss sees together."""
    gathered = any(m.gather for m in method.modules() if isinstance(m, OnViews))
    return config.batch // (1 if gathered else config.devices * config.nodes) // config.accumulate
