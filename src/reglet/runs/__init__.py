"""The one runner: arms x seeds x folds, stored, resumed, paired; one interval, one table, verdicts by rule."""

from reglet.runs.execute import execute as execute
from reglet.runs.interval import Interval as Interval
from reglet.runs.interval import Paired as Paired
from reglet.runs.interval import difference as difference
from reglet.runs.interval import interval as interval
from reglet.runs.interval import paired as paired
from reglet.runs.interval import seeds_needed as seeds_needed
from reglet.runs.run import Finished as Finished
from reglet.runs.run import Run as Run
from reglet.runs.run import store as store
from reglet.runs.run import stored as stored
from reglet.runs.summary import Line as Line
from reglet.runs.summary import Score as Score
from reglet.runs.summary import read_summary as read_summary
from reglet.runs.summary import summarise as summarise
from reglet.runs.summary import write_summary as write_summary
from reglet.runs.table import Cell as Cell
from reglet.runs.table import by_seed as by_seed
from reglet.runs.table import compare as compare
from reglet.runs.table import markdown as markdown
from reglet.runs.table import table as table
from reglet.runs.verdict import Claim as Claim
from reglet.runs.verdict import Gate as Gate
from reglet.runs.verdict import Verdict as Verdict
from reglet.runs.verdict import judge as judge
