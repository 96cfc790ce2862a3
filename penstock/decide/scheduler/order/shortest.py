"""The shortest request first, by the most tokens that it may come to; first come among equals.

The length of an answer is not known before it ends, but its bound (prompt plus max_tokens) is. Long requests can
wait for as long as shorter ones keep coming.
"""
from penstock.core.needs import Needs
from penstock.core.types import Seq


class Shortest:
    needs = Needs()
    varies = False

    def key(self, seq: Seq, now: float) -> tuple[float, ...]:
        return (seq.max_len, seq.arrival_s)
