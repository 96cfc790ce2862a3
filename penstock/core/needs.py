"""What a plug-in asks for and what a backend offers.

`serve/engine/build.py` refuses a pair that cannot work; nothing asks a plug-in its name.
"""
from dataclasses import dataclass

MAX_STATES = 4096


@dataclass(frozen=True, slots=True)
class Needs:
    """What a plug-in asks of the backend it runs with."""

    buffers: tuple[str, ...] = ()  # step buffers beside the logits: "hidden", "attention_mass"
    num_states: int = MAX_STATES  # of a proposer with "hidden": of how many of a sequence's latest tokens at most
    autograd: bool = False
    tree_masks: bool = False
    step_timer: bool = False
    verified_drafts: bool = False  # of a proposer: to be shown what became of them
    whole_outputs: bool = False  # of a proposer: to be shown them when sequences end


@dataclass(frozen=True, slots=True)
class Caps:
    """What a backend offers."""

    devices: tuple[str, ...]
    dtypes: tuple[str, ...]  # weight dtypes it computes with
    quant_schemes: tuple[str, ...] = ()
    kv_formats: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    tree_masks: bool = False
    capture: bool = False
    autograd: bool = False
    least_share: int = 1  # values of a model's largest matrix that a thread takes: the fewer there are, the fewer threads share them


def unmet(needs: Needs, caps: Caps, has_step_timer: bool = False) -> list[str]:
    """What `needs` asks for and `caps` lacks, in words; empty when the pair works."""
    lacks = [f"the step buffer {name!r}" for name in needs.buffers if name not in caps.buffers]
    if needs.autograd and not caps.autograd:
        lacks.append("autograd")
    if needs.tree_masks and not caps.tree_masks:
        lacks.append("tree masks in attention")
    if needs.step_timer and not has_step_timer:
        lacks.append("a step timer")
    return lacks
