"""Networks that reconstruct a window of a series: (n, length, channels) to the same shape.

Each is made by `Network(channels=, length=, width=)` and names in sim_blocks what SIM is attached to by default.
"""

from reglet.networks.series.itransformer import ITransformer
from reglet.networks.series.lightts import LightTS
from reglet.networks.series.mambats import MambaTS
from reglet.networks.series.timesnet import TimesNet

__all__ = ["ITransformer", "LightTS", "MambaTS", "TimesNet"]
