"""Views of series (n, channels, length), log-mel and telemetry alike: crop, scale, jitter, mask; the draw is kept."""

from reglet.views.series.crop import crop
from reglet.views.series.draw import SeriesDraw
from reglet.views.series.jitter import jitter
from reglet.views.series.mask import mask_channels, mask_time
from reglet.views.series.scale import scale
from reglet.views.series.view import SeriesView

__all__ = ["SeriesDraw", "SeriesView", "crop", "jitter", "mask_channels", "mask_time", "scale"]
