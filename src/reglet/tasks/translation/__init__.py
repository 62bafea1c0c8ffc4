"""Image translation without pairs, from domain a to domain b: `reglet train task=translation`."""

from reglet.tasks.translation.data import TwoDomains as TwoDomains
from reglet.tasks.translation.score import frechet_distance as frechet_distance
from reglet.tasks.translation.task import TASK as TASK
from reglet.tasks.translation.task import TranslationConfig as TranslationConfig
