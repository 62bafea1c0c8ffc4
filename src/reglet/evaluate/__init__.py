"""How good an encoder is: its features, extracted once, through probes and diagnostics."""

from reglet.evaluate.evaluation import Evaluation as Evaluation
from reglet.evaluate.evaluation import evaluate as evaluate
from reglet.evaluate.run import evaluate_run as evaluate_run
