"""Speculative decoding with a smaller model of the same tokens (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
arXiv:2302.01318): it goes on by itself for a few tokens. It draws with the numbers that the target will draw with, so that the two agree
as often when tokens are sampled as their distributions allow. Pays where the model is many times the size of its drafter."""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.arrays import Array
from penstock.compute.decoding.propose.contract import MOST, Draftable, Drafts, Host
from penstock.compute.decoding.propose.tables import MOST_ROWS, MOST_TOKENS, Rows, Tables, batch
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


class DraftModel:
    @dataclass(frozen=True, slots=True)
    class Options:
        model: str = "rill"
        k: int = 4  # drafts
        kv_tokens: int = 0  # size of its KV cache; 0: as many as the target's holds

    needs = Needs()

    def __init__(self, options: Options, host: Host) -> None:
        """Raises UsageError for options without sense and for a model with other tokens, ModelError for one that cannot be loaded."""
        check_ranges("draft_model", options, k=(1, MOST), kv_tokens=(0, MOST_TOKENS))
        self._options = options
        self._side = host.model(options.model, options.kv_tokens or host.kv_tokens)
        self._sampler = host.sampler
        self._vocab = min(host.spec.vocab_size, self._side.spec.vocab_size)
        self._tables = Tables(self._side.layout)
        self._computed: dict[int, list[int]] = {}  # by sequence: the tokens whose keys and values stand in its blocks

    def lookahead(self) -> int:
        return self._options.k

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        guesses: dict[int, list[int]] = {row.seq_id: [] for row in rows}
        going = [row for row in rows if self._make_room(row)]
        self._catch_up(going)
        for depth in range(self._options.k):
            going = [row for row in going if depth < row.room]
            if not going:
                break
            for row, token in zip(going, self._step(going, guesses, depth), strict=True):
                guesses[row.seq_id].append(token)
        return [Drafts(tuple(guesses[row.seq_id])) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._tables.forget(seq_id)
        self._computed.pop(seq_id, None)

    def _make_room(self, row: Draftable) -> bool:
        """Whether the sequence and its drafts fit the model and its cache. What was computed for drafts that were rejected is dropped."""
        tokens = row.tokens
        known = self._computed.setdefault(row.seq_id, [])
        same = len(known)
        for at in range(max(0, min(same, len(tokens)) - self._options.k - 1), same):
            if at >= len(tokens) - 1 or known[at] != tokens[at]:
                same = at
                break
        del known[same:]
        num_tokens = len(tokens) + min(self._options.k, row.room)
        if num_tokens > self._side.spec.max_position or max(tokens[same:]) >= self._side.spec.vocab_size:
            return False
        return self._tables.grow(row.seq_id, num_tokens) is not None

    def _catch_up(self, rows: Sequence[Draftable]) -> None:
        """Computes all but the last token of each sequence, where that is more than a step of drafting should do."""
        for row in rows:
            known = self._computed[row.seq_id]
            while len(row.tokens) - len(known) > MOST_ROWS // max(1, len(rows)) and len(row.tokens) - len(known) > 1:
                tokens = row.tokens[len(known) : min(len(known) + MOST_ROWS, len(row.tokens) - 1)]
                self._compute([Rows(tokens, len(known), self._tables.of(row.seq_id))], [])
                known.extend(tokens)

    def _step(self, rows: Sequence[Draftable], guesses: dict[int, list[int]], depth: int) -> list[int]:
        """Goes on by one token of each sequence: `guesses` hold `depth` drafts of each."""
        shares, ends, count = [], [], 0
        for row in rows:
            known = self._computed[row.seq_id]
            fresh = [*row.tokens[len(known) :], *guesses[row.seq_id]] if depth == 0 else [guesses[row.seq_id][-1]]
            shares.append(Rows(fresh, len(known), self._tables.of(row.seq_id)))
            known.extend(fresh)
            count += len(fresh)
            ends.append(count - 1)
        logits = self._compute(shares, ends)
        index = [len(row.tokens) - row.num_prompt + depth for row in rows]
        if any(row.state is None for row in rows):
            found: list[int] = logits.argmax(axis=1).tolist()
            return found
        return self._sampler.guess(logits, [row.state for row in rows if row.state is not None], index)

    def _compute(self, rows: Sequence[Rows], logit_rows: Sequence[int]) -> Array:
        side = self._side
        logits = side.backend.step(side.loaded, batch(rows, side.layout.block_size, logit_rows)).logits
        return logits[:, : self._vocab] if logits.shape[1] > self._vocab else logits
