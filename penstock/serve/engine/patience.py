"""How long a step may take before the engine counts as wedged: longer than any step of one that works, on a slow machine too.

A minute, or, where that is longer, what the operations of the largest step take at a rate that every machine reaches which is served
from. The rates are some ten times below those of slow machines: an alarm that comes late costs less than one that ends a sound server.
"""
from penstock.compute.ops import KINDS
from penstock.compute.program import Program
from penstock.core.config import EngineConfig
from penstock.core.work import StepWork
from penstock.serve.engine.build import Built, caps_of

LEAST_S = 60.0
THREAD_OPS_PER_S = 5e9  # of a processor's thread
DEVICE_OPS_PER_S = 1e12  # of any other device


def patience_s(built: Built) -> float:
    """For an engine that was built."""
    config = built.resolved.engine
    return longest_step_s(built.program, config, caps_of(config).devices[0])


def longest_step_s(program: Program, config: EngineConfig, device: str) -> float:
    """Seconds of the step with all rows that fit, at the end of the longest context, and logits of each of them."""
    rows = config.max_num_batched_tokens
    work = StepWork(((rows, max(rows, config.max_model_len or 0)),), rows)
    operations = sum(KINDS[op.kind].operations(op, program, work) for op in program.ops)
    rate = THREAD_OPS_PER_S * (config.threads or 1) if device.startswith("cpu") else DEVICE_OPS_PER_S
    return max(LEAST_S, operations / rate)
