"""Whether a scheduler's queues, the states of its sequences and its KV cache agree."""
from collections.abc import Mapping

from penstock.core.types import Seq, Status
from penstock.decide.kv.blocks import IntegrityError
from penstock.decide.scheduler.live import Live


def check_books(seqs: Mapping[int, Seq], live: Live) -> None:
    """Raises IntegrityError if they contradict each other."""
    live.kv.check_integrity()
    running, waiting = ({seq.seq_id for seq in queue} for queue in (live.running, live.waiting))
    if running & waiting or not running | waiting <= seqs.keys() or running != live.kv.holders():
        raise IntegrityError("a sequence is in two queues, in the wrong one, or unknown")
    for seq in seqs.values():
        if seq.status is not (Status.RUNNING if seq.seq_id in running else Status.WAITING):
            raise IntegrityError(f"sequence {seq.seq_id} is {seq.status.value} but in another queue")
        if seq.seq_id not in running and (seq.block_ids or seq.num_computed or seq.drafts):
            raise IntegrityError(f"sequence {seq.seq_id} waits with blocks, computed tokens or drafts")
        if seq.prompt and seq.prompt != tuple(seq.tokens[: seq.num_prompt]):
            raise IntegrityError(f"sequence {seq.seq_id} does not begin with its prompt")
        if not 0 <= seq.num_computed <= len(seq.tokens) <= max(seq.max_len, seq.num_prompt):
            raise IntegrityError(f"sequence {seq.seq_id} has {seq.num_computed} of {len(seq.tokens)} tokens computed")
