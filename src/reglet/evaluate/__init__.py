"""How good an encoder is: features are extracted once, then probes and diagnostics read them."""

from reglet.evaluate.evaluation import Evaluation as Evaluation
from reglet.evaluate.evaluation import evaluate as evaluate
from reglet.evaluate.one import evaluate_run as evaluate_run
from reglet.evaluate.source import Encoder as Encoder
from reglet.evaluate.source import open_source as open_source
