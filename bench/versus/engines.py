"""Whether an engine can be made as it is asked for: nothing is loaded."""
from penstock.core.config import EngineConfig
from penstock.serve.engine.build import Chosen, Found, check_proposer, check_scheduler, choose, find, settle


def check_words(config: EngineConfig, found: Found) -> Chosen:
    """Whatever the memory. Raises PenstockError."""
    chosen = choose(config, found)
    check_proposer(chosen.config, chosen.backend)
    check_scheduler(chosen.config)
    return chosen


def check_engine(config: EngineConfig) -> Found:
    """Its model is there, its options go together, and the memory holds it. Raises PenstockError."""
    found = find(config)
    settle(found, check_words(config, found))
    return found
