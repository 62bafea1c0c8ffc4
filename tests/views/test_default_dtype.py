"""Views are float32 whatever torch's default is: in bf16-true, Fabric changes it while another thread makes views."""

from collections.abc import Iterator

import pytest
import torch

from reglet.views import policy


@pytest.fixture
def bfloat16() -> Iterator[None]:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(usual)


@pytest.mark.parametrize("name", ["visreg", "simclr", "byol", "supervised", "plain"])
@pytest.mark.usefixtures("bfloat16")
def test_views_do_not_depend_on_the_default_dtype(name: str) -> None:
    images = torch.randint(0, 256, (6, 3, 40, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    def views() -> list[torch.Tensor]:
        made = policy(name, size=32)
        return made.apply(images, made.draw(6, torch.Generator().manual_seed(1)))

    changed = views()
    torch.set_default_dtype(torch.float32)
    usual = views()
    assert all(a.dtype == torch.float32 and torch.equal(a, b) for a, b in zip(changed, usual, strict=True))
