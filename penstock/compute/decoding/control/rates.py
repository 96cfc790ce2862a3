"""How often drafts at each position come true."""
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class PositionRates:
    """How often drafts come true, by position, given that those before them have."""

    reached: list[float]  # proposals with a draft there, all before it accepted
    accepted: list[float]

    @classmethod
    def like(cls, rates: Sequence[float], weight: float) -> "PositionRates":
        """As if so many proposals had come true at these rates."""
        return cls([weight] * len(rates), [weight * rate for rate in rates])

    def record(self, num_drafts: int, num_accepted: int, decay: float) -> None:
        """A proposal, of which the first so many drafts were accepted."""
        for position in range(min(num_drafts, num_accepted + 1, len(self.reached))):
            self.reached[position] = decay * self.reached[position] + 1
            self.accepted[position] = decay * self.accepted[position] + (position < num_accepted)

    def fade(self, factor: float, first: int = 0) -> None:
        """What is known of the positions from `first` on weighs so much less."""
        self.reached[first:] = [factor * count for count in self.reached[first:]]
        self.accepted[first:] = [factor * count for count in self.accepted[first:]]

    def rates(self, prior: Sequence[float], prior_weight: float) -> list[float]:
        return [(accepted + prior_weight * rate) / (reached + prior_weight)
                for accepted, reached, rate in zip(self.accepted, self.reached, prior, strict=True)]
