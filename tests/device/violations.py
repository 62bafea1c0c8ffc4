"""Known violations of the laws, by row: where.  Each is a strict xfail: once it is mended, its line has to go."""

VALUES: dict[str, str] = {}

TRAFFIC: dict[str, str] = {
    "blocks/sim": "sampling.py copies",
    "blocks/sim-plain": "sampling.py copies",
    "groups/act": "action.py copies",
    "groups/act-on-tokens": "action.py copies",
    "groups/symmetry": "action.py copies",
    "methods/regularized": "sampling.py copies",
    "methods/augself": "augself.py copies",
    "methods/equimod": "equimod.py copies",
    "methods/essl": "action.py copies",
    "methods/equivariant": "action.py copies",
}

FLOAT64: dict[str, str] = {}
