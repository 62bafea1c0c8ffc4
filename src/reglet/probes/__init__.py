"""Features in, scores out; no trainer."""

from reglet.probes.knn import knn_probe as knn_probe
from reglet.probes.knn import knn_votes as knn_votes
from reglet.probes.linear import LinearScore as LinearScore
from reglet.probes.linear import linear_probe as linear_probe
from reglet.probes.linear import logistic_regression as logistic_regression
