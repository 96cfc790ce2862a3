"""Where the longest prefix of the prompt is cached, as long as that saves more than it costs to wait there.

Both are counted in tokens: a request goes where the fewest are before it, those outstanding there and those of its prompt that must be
computed there. A token of an answer counts like one of a prompt, though it costs less and is made beside the newcomer's. So a replica that
holds h more tokens of the prompt than another gets it until h more are outstanding on it; then the prefix is computed again elsewhere,
where it is found from then on. Among equals the replica goes first that was sent the fewest blocks that it had not: its cache has most
room, and once all are full, those that prompts have left longest ago.

The idea: Srivatsa et al., "Preble" (ICLR 2025), and Qin et al., "Mooncake" (FAST 2025), who weigh a longer prefix against a longer queue in
predicted seconds; the cache-aware router of SGLang (Zheng et al., NeurIPS 2024), which keeps a tree of what it sent where and falls back
to the shortest queue beyond a threshold of imbalance.
"""
from collections.abc import Sequence

from penstock.decide.routing.contract import Engines, Load, Prompt
from penstock.decide.routing.sent import Sent, block_keys


class Prefix:
    """Remembers for each replica as many blocks as its cache has."""

    def __init__(self, engines: Engines) -> None:
        self._block_size = engines.block_size
        self._sent = [Sent(engines.num_blocks) for _ in range(engines.count)]

    def pick(self, prompt: Prompt, loads: Sequence[Load]) -> int:
        keys = block_keys(prompt.salt, prompt.tokens, self._block_size)

        def cost(number: int) -> tuple[int, int]:
            sent = self._sent[number]
            return loads[number].outstanding - sent.num_leading(keys) * self._block_size, sent.num_new

        number = min(range(len(loads)), key=cost)
        self._sent[number].note(keys)
        return number
