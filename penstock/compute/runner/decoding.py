"""Everything that decides which tokens come out of the runner."""
from dataclasses import dataclass, field

from penstock.compute.decoding.acceptance.contract import Acceptance
from penstock.compute.decoding.acceptance.exact import Exact
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.runner.constrain import Constraints
from penstock.compute.runner.drafter import Drafter


@dataclass(frozen=True, slots=True)
class Decoding:
    sampler: Sampler
    drafter: Drafter | None = None  # None: only grammars draft
    acceptance: Acceptance = field(default_factory=Exact)
    constraints: Constraints | None = None  # None: no sequence follows a grammar
