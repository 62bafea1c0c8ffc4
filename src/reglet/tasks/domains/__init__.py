"""Training on several domains for one that was never seen: `reglet train task=domains`."""

from reglet.tasks.domains.task import DomainsTask

TASK = DomainsTask()
