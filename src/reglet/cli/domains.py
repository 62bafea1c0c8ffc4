"""`reglet train task=domains`"""

from dataclasses import fields

from reglet.cli.words import OK, asks_help, pairs
from reglet.engine.config import typed

TASK = "task=domains"
HELP = """\
reglet train task=domains key=value ...   train on all domains but one, test on that one, for each in turn

  reglet train task=domains                                        the built-in digits, whose ground is the domain
  reglet train task=domains data=pacs/ model=resnet18 loss=irm     a folder domain/class/image
  reglet train task=domains loss=latentdr lr=5e-4,1e-3 selection=leave_one_domain_out seeds=5

Every domain is cut 80/20; the larger parts train, or test where the domain is the one held out, and the smaller parts
choose.  Batches have as many images of every domain.  Runs that are finished in `out` are kept.

  selection   training_domain: by the smaller parts of the training domains
              leave_one_domain_out: by training domains held out in further runs, one at a time
              oracle: by the smaller part of the test domain, at the last checkpoint; it looks at what is reported

Keys and their defaults:"""


def train_domains(words: list[str]) -> int:
    from reglet.engine.domains import REPORT, DomainsConfig

    if asks_help(words):
        print(HELP)
        for f in fields(DomainsConfig):
            print(f"  {f'{f.name}={f.default}':<28} {f.metadata['help']}")
        return OK
    kinds = {f.name: type(f.default) for f in fields(DomainsConfig)}
    given = pairs([word for word in words if word != TASK], tuple(kinds))
    config = DomainsConfig(**{key: typed(key, text, kinds[key]) for key, text in given.items()})

    from reglet.cli.domains_table import show, tracked
    from reglet.data import load

    report = tracked(config, load(config.data, size=config.size))
    show(report)
    print(f"{config.out}/{REPORT} has every number.")
    return OK
