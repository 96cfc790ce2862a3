"""All that has a say in which tokens come out."""
from dataclasses import dataclass, field

from penstock.compute.decoding.acceptance.contract import Acceptance
from penstock.compute.decoding.acceptance.exact import Exact
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.runner.constrain import Constraints
from penstock.compute.runner.drafting import Drafting


@dataclass(frozen=True, slots=True)
class Decoding:
    """`drafting` None: nothing is drafted; `constraints` None: no sequence follows a grammar."""

    sampler: Sampler
    drafting: Drafting | None = None
    acceptance: Acceptance = field(default_factory=Exact)
    constraints: Constraints | None = None
