"""Stand-ins for tests: a runner without a model that proves, slot by slot, that the plans it is given keep the KV cache right."""
from dataclasses import dataclass, field

from penstock.core.types import PlannedSeq, SeqInfo, SeqResult, StepPlan, StepResult, TokenLogprobs

SEED = 14695981039346656037


def mix(state: int, token: int) -> int:
    """The hash of a prefix from that of the prefix before its last token."""
    return ((state ^ (token + 1)) * 1099511628211 + 0x9E3779B9) % (1 << 64)


def prefix_hashes(tokens: list[int]) -> list[int]:
    """The hash of each prefix of `tokens`, the shortest first."""
    hashes, state = [], SEED
    for token in tokens:
        state = mix(state, token)
        hashes.append(state)
    return hashes


def choose(state: int, vocab: int) -> int:
    """The token that follows a prefix with hash `state`."""
    return (state >> 20) % vocab


def continuation(prompt: list[int], num_tokens: int, vocab: int) -> list[int]:
    """What a `FakeRunner` generates after `prompt` when nothing goes wrong."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(choose(prefix_hashes(tokens)[-1], vocab))
    return tokens[len(prompt) :]


@dataclass
class _Known:
    info: SeqInfo
    tokens: list[int] = field(default_factory=list)


class FakeRunner:
    """Chooses tokens by a hash of all that came before, and stores in each KV slot the hash of the prefix that ends there.

    Before it computes a row it compares every slot that the row would read with what must be there, so that a block shared,
    copied, evicted or truncated wrongly raises AssertionError in the step where it first matters.
    With `num_drafts` it proposes as many drafts, of which about two in three are right.
    """

    def __init__(self, block_size: int, vocab: int = 50, num_drafts: int = 0) -> None:
        self.block_size = block_size
        self.vocab = vocab
        self.num_drafts = num_drafts
        self.slots: dict[tuple[int, int], int] = {}
        self.known: dict[int, _Known] = {}
        self.plans: list[StepPlan] = []

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        for seq_id in plan.finished:
            self.known.pop(seq_id, None)
        for seq_id, start, tokens in plan.tails:
            self.known[seq_id].tokens[start:] = tokens
        for source, target in plan.copies:
            for offset in range(self.block_size):
                if (source, offset) in self.slots:
                    self.slots[target, offset] = self.slots[source, offset]
        written = [self._written(planned) for planned in plan.seqs]
        assert sum(len(blocks) for blocks in written) == len(set().union(*written)), "two sequences write into one block"
        return StepResult(step_id=plan.step_id, seqs=tuple(self._run(planned) for planned in plan.seqs))

    def _written(self, planned: PlannedSeq) -> set[int]:
        end = planned.start + len(planned.tokens)
        assert planned.tokens and len(planned.block_ids) * self.block_size >= end
        return {planned.block_ids[p // self.block_size] for p in range(planned.start, end)}

    def _run(self, planned: PlannedSeq) -> SeqResult:
        assert (planned.new is not None) == (planned.seq_id not in self.known), "SeqInfo is sent once, with the first rows"
        if planned.new is not None:
            self.known[planned.seq_id] = _Known(planned.new, [*planned.new.prompt, *planned.new.output])
        known = self.known[planned.seq_id]
        final = list(planned.tokens[: len(planned.tokens) - planned.num_drafts])
        self._check_tokens(planned, known, final)
        for position, state in enumerate(prefix_hashes(known.tokens[: planned.start])):
            slot = planned.block_ids[position // self.block_size], position % self.block_size
            assert self.slots.get(slot) == state, f"seq {planned.seq_id} reads garbage at position {position}"
        states = prefix_hashes(known.tokens[: planned.start] + list(planned.tokens))[planned.start :]
        for position, state in enumerate(states, planned.start):
            self.slots[planned.block_ids[position // self.block_size], position % self.block_size] = state
        return self._choose(planned, known, states)

    def _check_tokens(self, planned: PlannedSeq, known: _Known, final: list[int]) -> None:
        end = planned.start + len(final)
        if known.info.held and end == len(known.tokens) + 1:  # appended by the search
            known.tokens.append(final[-1])
        assert known.tokens[planned.start : end] == final
        num_unseen = planned.num_prompt + planned.num_output - len(known.tokens)
        assert num_unseen == 0 or num_unseen == 1 and known.info.held  # appended, and to come with a later chunk
        assert planned.samples == (end == len(known.tokens) + num_unseen) and planned.num_prompt == len(known.info.prompt)
        assert planned.num_drafts == 0 or planned.samples

    def _choose(self, planned: PlannedSeq, known: _Known, states: list[int]) -> SeqResult:
        prompt_logprobs = self._prompt_logprobs(planned, known)
        if not planned.samples:
            return SeqResult(planned.seq_id, prompt_logprobs=prompt_logprobs)
        if known.info.wants_embedding:
            return SeqResult(planned.seq_id, embedding=(float(states[-1]),))
        drafts = planned.tokens[len(planned.tokens) - planned.num_drafts :]
        choices = [choose(state, self.vocab) for state in states[len(states) - planned.num_drafts - 1 :]]
        if known.info.held:
            best = choices[-1]
            return SeqResult(planned.seq_id, candidates=((best, -0.5), ((best + 1) % self.vocab, -1.5)))
        num_accepted = 0
        while num_accepted < planned.num_drafts and drafts[num_accepted] == choices[num_accepted]:
            num_accepted += 1
        tokens = tuple(choices[: num_accepted + 1])
        known.tokens.extend(tokens)
        logprobs = ()
        if known.info.params.logprobs is not None:
            logprobs = tuple(TokenLogprobs(token, -float(token), 1) for token in tokens)
        return SeqResult(planned.seq_id, tokens, logprobs, prompt_logprobs, drafts=self._propose(known.tokens))

    def _prompt_logprobs(self, planned: PlannedSeq, known: _Known) -> tuple[TokenLogprobs, ...]:
        if known.info.params.prompt_logprobs is None:
            return ()
        first = max(planned.start, planned.num_scored) + 1
        following = known.info.prompt[first : planned.start + 1 + len(planned.tokens)]
        return tuple(TokenLogprobs(token, -float(i), 1) for i, token in enumerate(following, first))

    def _propose(self, tokens: list[int]) -> tuple[int, ...]:
        drafts: list[int] = []
        state = prefix_hashes(tokens)[-1]
        for _ in range(self.num_drafts):
            token = choose(state, self.vocab)
            drafts.append(token if state % 3 else (token + 1) % self.vocab)
            state = mix(state, token)
        return tuple(drafts)
