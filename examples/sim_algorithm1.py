"""rhoSIM's Algorithm 1, line by line: two decorators and one term in the loss.

    python examples/sim_algorithm1.py          about ten seconds

A small residual network learns to tell four kinds of stripes apart.  Printed are the two losses and the accuracy, and
at the end what SIM added to the network.  For networks that are not your own, or to keep the heads out of the
checkpoint, use `reglet.attach` instead: the last lines show that it computes the same.
"""

import argparse
import math

import torch
from torch import Tensor, nn

import reglet
from reglet.blocks import forward_with_SIM, init_SIM, sim_loss


class ResNetBlock(nn.Module):
    @init_SIM()  # step 1
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        stride = 1 if in_channels == out_channels else 2
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample = nn.Identity() if stride == 1 else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    @forward_with_SIM()  # step 2
    def forward(self, x: Tensor) -> Tensor:
        h = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return torch.relu(h + self.downsample(x))


class ResNet(nn.Module):
    sim_loss = sim_loss  # what step 3 reads

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.blocks = nn.Sequential(ResNetBlock(16, 16), ResNetBlock(16, 32), ResNetBlock(32, 32), ResNetBlock(32, 64))
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return logits


def stripes(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """16 x 16 stripes at one of four angles, of any phase and width, in noise of their own strength."""
    label = torch.randint(4, (n,), generator=generator)
    angle = label * math.pi / 4
    row, column = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    along = angle.cos()[:, None, None] * row + angle.sin()[:, None, None] * column
    frequency = 0.6 + 0.6 * torch.rand(n, 1, 1, generator=generator)
    phase = 2 * math.pi * torch.rand(n, 1, 1, generator=generator)
    image = torch.sin(frequency * along + phase) + torch.randn(n, 16, 16, generator=generator)
    return image[:, None], label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="where examples leave their files; this one leaves none")
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    steps = 20 if parser.parse_args().quick else 100

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    test_images, test_labels = stripes(512, generator)

    lambda_sim = 5e-3
    model = ResNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    print("step   task loss   SIM loss   test accuracy")
    for step in range(1, steps + 1):
        data, label = stripes(64, generator)
        optimizer.zero_grad()
        output = model(data)
        loss = criterion(output, label)
        sim_loss = model.sim_loss  # step 3
        total_loss = loss + lambda_sim * sim_loss
        total_loss.backward()
        optimizer.step()

        if step in (1, steps) or step % 20 == 0:
            model.eval()
            with torch.no_grad():
                accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
            model.train()
            print(f"{step:4d} {loss.item():11.3f} {sim_loss.item():10.3f} {accuracy:15.1%}")

    heads = sum(p.numel() for name, p in model.named_parameters() if "sim_head" in name)
    rest = sum(p.numel() for p in model.parameters()) - heads
    print(f"\nheads of SIM: {heads:,} parameters beside the network's {rest:,}; not needed after training")
    attached(model)


def attached(model: ResNet) -> None:
    """The same from outside, on a network whose blocks know nothing of it."""
    data, _ = stripes(64, torch.Generator().manual_seed(1))
    sim = reglet.attach(model, "blocks.*", reglet.SIM(), example=data)
    model(data)
    print(f"attach(model, 'blocks.*', SIM()) with fresh heads: {sim.loss().item():.3f} on {', '.join(sim.blocks)}")
    sim.remove()


if __name__ == "__main__":
    main()
