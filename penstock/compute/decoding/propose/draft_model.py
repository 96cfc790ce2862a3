"""Speculative decoding with a smaller model that has the same tokenizer (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
arXiv:2302.01318): the draft model generates up to `k` tokens, one after another. Costs `k` decode steps of the draft model per step of the
target, for all sequences in one batch, and memory for its weights and KV cache. Helps on any text, if the draft model's step is many times
cheaper than the target's. For sampled sequences it draws with the random numbers that the target will draw with, so that acceptance comes
close to that of rejection sampling.

The draft model's KV cache is separate from the target's. The proposer knows for each sequence which tokens are in that cache, and computes
missing ones when it is asked next, in no longer steps than the target's: a sequence may have been omitted from any number of steps.
"""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.decoding.propose.block_tables import MAX_KV_TOKENS, BlockTables, SeqRows, make_batch, shares
from penstock.compute.decoding.propose.contract import MAX_DRAFTS, Draftable, Drafts, Host
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


class DraftModel:
    @dataclass(frozen=True, slots=True)
    class Options:
        model: str = "rill"
        k: int = 4  # maximum number of drafts
        kv_tokens: int = 0  # capacity of the draft model's KV cache, in tokens; 0: the capacity of the target's

    needs = Needs()

    def __init__(self, options: Options, host: Host) -> None:
        """Raises UsageError for options out of range and for a model with another tokenizer, ModelError for one that cannot be loaded."""
        check_ranges("draft_model", options, k=(1, MAX_DRAFTS), kv_tokens=(0, MAX_KV_TOKENS))
        self._options = options
        self._aux = host.model(options.model, options.kv_tokens or host.kv_tokens)
        self._sampler = host.sampler
        self._most_rows = host.max_num_batched_tokens
        self._vocab = min(host.spec.vocab_size, self._aux.spec.vocab_size)
        self._tables = BlockTables(self._aux.layout)
        self._computed: dict[int, list[int]] = {}  # by sequence: tokens whose keys and values are in the cache

    def lookahead(self) -> int:
        return self._options.k

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        drafts: dict[int, list[int]] = {row.seq_id: [] for row in rows}
        fitting = [row for row in rows if self._prepare(row)]
        lacking = [row.tokens[len(self._computed[row.seq_id]) :] for row in fitting]  # what prompts and skipped steps brought
        counts = shares(list(map(len, lacking)), self._most_rows)
        fresh = [(row, tokens[:count]) for row, tokens, count in zip(fitting, lacking, counts, strict=True) if count]
        active = [row for row, tokens, count in zip(fitting, lacking, counts, strict=True) if count == len(tokens)]
        reading = {row.seq_id for row in fitting} - {row.seq_id for row in active}
        for depth in range(self._options.k):
            active = [row for row in active if depth < row.room]
            if depth:
                fresh = [(row, drafts[row.seq_id][-1:]) for row in active]
            if not fresh:
                break
            for row, token in zip(active, self._step(fresh, active, depth), strict=True):
                drafts[row.seq_id].append(token)
        return [Drafts(tuple(drafts[row.seq_id]), is_reading=row.seq_id in reading) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._tables.forget(seq_id)
        self._computed.pop(seq_id, None)

    def _prepare(self, row: Draftable) -> bool:
        """Forgets rejected drafts, and allocates blocks for the sequence and its next drafts. False if these do not fit into the model's
        context or its cache, or the sequence has a token that the model does not know. Only the last k + 1 computed tokens can differ from
        the sequence's; its last token is always computed again, for its logits."""
        tokens = row.tokens
        computed = self._computed.setdefault(row.seq_id, [])
        num_valid = len(computed)
        for at in range(max(0, min(num_valid, len(tokens)) - self._options.k - 1), num_valid):
            if at >= len(tokens) - 1 or computed[at] != tokens[at]:
                num_valid = at
                break
        del computed[num_valid:]
        num_tokens = len(tokens) + min(self._options.k, row.room)
        if num_tokens > self._aux.spec.max_position or max(tokens[num_valid:]) >= self._aux.spec.vocab_size:
            return False
        return self._tables.grow(row.seq_id, num_tokens) is not None

    def _step(self, fresh: Sequence[tuple[Draftable, Sequence[int]]], active: Sequence[Draftable], depth: int) -> list[int]:
        """Computes the next tokens of some sequences. Returns the next draft of those that are `active`, which have `depth` drafts so far;
        they are in the order of `fresh`."""
        drafting = {row.seq_id for row in active}
        seqs, last_rows, num_rows = [], [], 0
        for row, tokens in fresh:
            computed = self._computed[row.seq_id]
            seqs.append(SeqRows(tokens, len(computed), self._tables.of(row.seq_id)))
            computed.extend(tokens)
            num_rows += len(tokens)
            if row.seq_id in drafting:
                last_rows.append(num_rows - 1)
        aux = self._aux
        logits = aux.backend.step(aux.loaded, make_batch(seqs, aux.layout.block_size, last_rows)).logits[:, : self._vocab]
        if any(row.state is None for row in active):
            found: list[int] = logits.argmax(axis=1).tolist()
            return found
        index = [len(row.tokens) - row.num_prompt + depth for row in active]
        return self._sampler.guess(logits, [row.state for row in active if row.state is not None], index) if active else []
