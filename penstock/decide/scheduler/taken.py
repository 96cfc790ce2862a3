"""What a step found for a sequence, as the sequence takes it in."""
from penstock.core.drafting import DraftCheck, by_position
from penstock.core.types import PlannedSeq, Seq, SeqResult, StepPlan, StepResult
from penstock.decide.scheduler.stop import Ending, ending


def check_result(in_flight: StepPlan | None, plan: StepPlan, result: StepResult) -> None:
    """Raises ValueError if result and plan do not belong together, or the plan is not the one in flight."""
    if in_flight is None or plan.step_id != in_flight.step_id or result.step_id != plan.step_id:
        raise ValueError(f"step {plan.step_id} is not in flight, or {result.step_id} is not its result")
    if [planned.seq_id for planned in plan.seqs] != [found.seq_id for found in result.seqs]:
        raise ValueError(f"the result of step {plan.step_id} does not name the planned sequences in their order")


def take_tokens(seq: Seq, planned: PlannedSeq, found: SeqResult) -> tuple[Ending, DraftCheck | None]:
    """Appends accepted drafts and the token after them; keys and values of rejected drafts are left behind as garbage. Returns how many
    tokens were kept and why it ends, and what became of drafts. Raises ValueError for more tokens than there were drafts for."""
    num_drafts, num_accepted, check = planned.num_drafts, len(found.tokens) + found.num_cut - 1, None
    if not 0 <= num_accepted <= num_drafts:
        raise ValueError(f"sequence {seq.seq_id} has {num_drafts} drafts in the step, but {num_accepted + 1} tokens came back")
    end = ending(seq, found.tokens, found.ended)
    seq.tokens.extend(found.tokens[: end.num_kept])
    seq.num_computed = min(planned.start + len(planned.tokens) - num_drafts + num_accepted, len(seq.tokens))
    if seq.drafts:
        seq.drafts, seq.draft_parents = [], None
        if num_drafts:
            check = DraftCheck(by_position(num_drafts, planned.draft_parents), min(num_accepted, end.num_kept))
    return end, check


def take_drafts(seq: Seq, found: SeqResult) -> None:
    """Keeps the drafts that could be accepted before max_len; in a tree, parents come before their children."""
    most = seq.max_len - len(seq.tokens) - 1
    seq.drafts = list(found.drafts[:most])
    seq.draft_parents = None if found.draft_parents is None else list(found.draft_parents[:most])
