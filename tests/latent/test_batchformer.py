import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.latent import BatchFormer
from reglet.tails import BalancedSoftmax
from reglet.types import LatentLoss

DIM, CLASSES = 8, 3


def pair(dropout: float = 0.0) -> tuple[BatchFormer, nn.TransformerEncoderLayer]:
    """Ours and the layer that the authors' code is, with the same weights, all of them random."""
    torch.manual_seed(0)
    ours = BatchFormer(DIM, dropout=dropout).double()
    for p in ours.parameters():
        nn.init.normal_(p, std=0.5)
    torchs, layer = nn.TransformerEncoderLayer(DIM, 4, DIM, dropout).double(), ours.layer
    with torch.no_grad():
        torchs.self_attn.in_proj_weight.copy_(torch.cat([layer.mix.q.weight, layer.mix.kv.weight]))
        torchs.self_attn.in_proj_bias.copy_(torch.cat([layer.mix.q.bias, layer.mix.kv.bias]))
    torchs.self_attn.out_proj.load_state_dict(layer.mix.out.state_dict())
    torchs.linear1.load_state_dict(layer.ff[0].state_dict())
    torchs.linear2.load_state_dict(layer.ff[3].state_dict())
    torchs.norm1.load_state_dict(layer.norm1.state_dict())
    torchs.norm2.load_state_dict(layer.norm2.state_dict())
    return ours, torchs


def data(n: int = 6) -> tuple[Tensor, Tensor, nn.Linear]:
    torch.manual_seed(1)
    return torch.randn(n, DIM).double().requires_grad_(), torch.arange(n) % CLASSES, nn.Linear(DIM, CLASSES).double()


def test_equals_the_authors_loss() -> None:
    ours, torchs = pair()
    z, y, head = data()
    want = F.cross_entropy(head(torch.cat([z, torchs(z[:, None])[:, 0]])), torch.cat([y, y]))
    got = ours(z, y, head)
    torch.testing.assert_close(got, want)
    a, b = (torch.autograd.grad(value, [z, *head.parameters()]) for value in (got, want))
    for x, w in zip(a, b, strict=True):
        torch.testing.assert_close(x, w)


def test_terms_are_halves() -> None:
    ours, _ = pair()
    z, y, head = data()
    found = ours.terms(z, y, head)
    torch.testing.assert_close(found["original"], F.cross_entropy(head(z), y) / 2)
    torch.testing.assert_close(found["transformed"], F.cross_entropy(head(ours.transform(z)), y) / 2)
    assert isinstance(ours, LatentLoss)


def test_parameter_count() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in BatchFormer(2048).parameters()) == 25_186_304


def test_drops_by_default_in_training_alone() -> None:
    former, (z, y, head) = BatchFormer(DIM).double(), data()
    assert former(z, y, head) != former(z, y, head)
    former.eval()
    assert former(z, y, head) == former(z, y, head)


def test_criterion() -> None:
    ours, _ = pair()
    z, y, head = data()
    want = ours(z, y, lambda rows: head(rows) + torch.tensor([8.0, 4.0, 1.0]).double().log())
    ours.criterion = BalancedSoftmax([8, 4, 1])
    torch.testing.assert_close(ours(z, y, head), want, rtol=1e-6, atol=0)  # log counts are kept in float32


def test_gradcheck() -> None:
    ours, _ = pair()
    z, y, head = data(4)
    assert torch.autograd.gradcheck(lambda rows: ours(rows, y, head), z)


def test_bad_input() -> None:
    z, y, head = data()
    with pytest.raises(ValueError, match=r"latents of BatchFormer must be .* \(_, 16\) .* got shape \(6, 8\)"):
        BatchFormer(16)(z, y, head)
    with pytest.raises(ValueError, match="multiple of heads, got 6 and 4"):
        BatchFormer(6)
