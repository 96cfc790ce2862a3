"""Whether an engine can be made as it is asked for: nothing is loaded."""
from penstock.core.config import EngineConfig
from penstock.serve.engine.build import Chosen, Found, check_proposer, check_scheduler, choose, drafting_takes, find
from penstock.serve.engine.machine import look
from penstock.serve.engine.resolve import resolve


def check_words(config: EngineConfig, found: Found) -> Chosen:
    """Whatever the memory. Raises PenstockError."""
    chosen = choose(config, found)
    check_proposer(chosen.config, chosen.backend)
    check_scheduler(chosen.config)
    return chosen


def check_engine(config: EngineConfig) -> Found:
    """Its model is there, its options go together, and the memory holds it. Raises PenstockError."""
    found = find(config)
    chosen = check_words(config, found)
    resolve(chosen.config, found.spec, chosen.holding.held, look(), drafting_takes(config, found, chosen))
    return found
