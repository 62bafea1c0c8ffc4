"""Runs -> one HTML page with everything in it: gather (plain data), figures (for Plotly), page (HTML)."""

from reglet.report.gather import Source as Source
from reglet.report.write import write_report as write_report
