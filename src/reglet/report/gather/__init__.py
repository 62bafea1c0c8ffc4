"""A run -> plain data: everything that the page shows, and where something is missing, why."""

from reglet.report.gather.missing import Missing as Missing
from reglet.report.gather.run import RunData as RunData
from reglet.report.gather.run import gather as gather
from reglet.report.gather.source import Source as Source
