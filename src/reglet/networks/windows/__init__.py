"""Windows of a series (channels, length) to embeddings."""

from reglet.networks.windows.conv1d import ConvNet1d

__all__ = ["ConvNet1d"]
