"""Embeddings of series without labels, by view losses on 1-D views: `reglet train task=series-ssl`."""

from reglet.tasks.series_ssl.task import SeriesSSLTask

TASK = SeriesSSLTask()
