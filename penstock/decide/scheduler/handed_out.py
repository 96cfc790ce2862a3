"""Which log-probabilities of prompts were handed out: a prompt that is computed again after a preemption tells none of them twice."""
from penstock.core.types import PlannedSeq, SeqResult, TokenLogprobs


class HandedOut:
    def __init__(self) -> None:
        self._num_rows: dict[int, int] = {}  # by seq_id

    def __len__(self) -> int:
        return len(self._num_rows)

    def new(self, planned: PlannedSeq, found: SeqResult) -> tuple[TokenLogprobs, ...]:
        """Those of a step that were not handed out before; now they are."""
        if not found.prompt_logprobs:
            return ()
        num_known = self._num_rows.get(planned.seq_id, 0)
        self._num_rows[planned.seq_id] = max(num_known, planned.start + len(found.prompt_logprobs))
        return found.prompt_logprobs[max(num_known - planned.start, 0) :]

    def forget(self, seq_id: int) -> None:
        self._num_rows.pop(seq_id, None)
