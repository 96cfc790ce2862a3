"""How often drafts come true."""
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class PositionRates:
    """How often drafts come true, by their index in the proposal, beside the one before. The product of the rates up to an index is how
    often that draft comes true: in chains, where one that comes true follows one that has, and in trees, whose drafts come in the order of
    their likelihood."""

    reached: list[float]  # proposals with this draft, the one before it accepted
    accepted: list[float]

    @classmethod
    def none(cls, max_drafts: int) -> "PositionRates":
        """Nothing is known yet."""
        return cls([0.0] * max_drafts, [0.0] * max_drafts)

    def record(self, num_drafts: int, path: Sequence[int], decay: float) -> None:
        """A proposal, of which these drafts (indices) were accepted."""
        if not path or path[-1] == len(path) - 1:  # the first ones: in chains, and in most trees
            reached = min(num_drafts, len(path) + 1, len(self.reached))
            accepted = min(reached, len(path))
            self.reached[:reached] = [decay * count + 1 for count in self.reached[:reached]]
            self.accepted[:accepted] = [decay * count + 1 for count in self.accepted[:accepted]]
            if accepted < reached:
                self.accepted[accepted] *= decay
            return
        was_accepted = True
        for index in range(min(num_drafts, path[-1] + 2 if path else 1, len(self.reached))):
            is_accepted = index in path
            if was_accepted or is_accepted:
                self.reached[index] = decay * self.reached[index] + was_accepted
                self.accepted[index] = decay * self.accepted[index] + is_accepted
            was_accepted = is_accepted

    def fade(self, factor: float, first: int) -> None:
        """What is known of the positions from `first` on weighs so much less."""
        self.reached[first:] = [factor * count for count in self.reached[first:]]
        self.accepted[first:] = [factor * count for count in self.accepted[first:]]

    def forgive(self, factor: float) -> None:
        """Drafts that did not come true weigh so much less."""
        both = zip(self.reached, self.accepted, strict=True)
        self.reached = [accepted + factor * max(reached - accepted, 0.0) for reached, accepted in both]

    def rates(self, prior: Sequence[float], prior_weight: float) -> list[float]:
        return [(accepted + prior_weight * rate) / (reached + prior_weight)
                for accepted, reached, rate in zip(self.accepted, self.reached, prior, strict=True)]
