"""Time that may be spent on what yields no tokens, or on what may turn out to have been a loss."""
from dataclasses import dataclass
from math import ceil, inf

SAVED_SHOW_STEPS = 8  # steps whose whole time the budget for showing may hold: many answers may end together
MAX_LOSS_SHARE, SAVED_LOSS_STEPS, WON_STEPS = 0.004, 4, 64  # of the time, that drafts may lose; steps whose time is saved; with gains


@dataclass(slots=True)
class Budget:
    """Seconds. It earns a share of the time of steps, as long as it holds less than `most_s`; gains may fill it up to `most_gained_s`. It
    falls below zero, to `least_s` at most, where something took longer than expected, and to `least_owed_s` by what is known to be lost:
    then nothing is spent until that is earned back."""

    share: float = 0.0  # of a step's time that it earns
    left_s: float = 0.0  # infinite: it begins full
    income_s: float = 0.0  # of a step
    most_s: float = inf
    most_gained_s: float = inf
    least_s: float = -inf
    least_owed_s: float = -inf

    def earn_from(self, step_s: float, most: float, most_gained: float = 0.0, least: float = inf, least_owed: float = inf) -> None:
        """Steps take `step_s` now; so what is owed of longer ones is no more than that of as many of these. The others: numbers of them."""
        self.income_s, self.most_s, self.most_gained_s = self.share * step_s, most * step_s, max(most, most_gained) * step_s
        self.least_s, self.least_owed_s = -least * step_s, -max(least, least_owed) * step_s
        self.left_s = max(self.left_s, self.least_owed_s)

    def add(self, num_steps: int) -> None:
        """This many steps were made."""
        if self.left_s < self.most_s:
            self.left_s = min(self.left_s + self.income_s * num_steps, self.most_s)

    def spend(self, seconds: float) -> None:
        """Below zero: that much was gained."""
        left_s = self.most_s if self.left_s == inf else self.left_s
        least_s = min(self.least_s, left_s)  # it may owe more already
        self.left_s = max(min(left_s, left_s - seconds), min(left_s - seconds, self.most_gained_s), least_s)

    def owe(self, seconds: float) -> None:
        """Spends what is known to have been lost."""
        left_s = self.most_s if self.left_s == inf else self.left_s
        self.left_s = max(left_s - seconds, min(left_s, self.least_owed_s))

    @property
    def step_s(self) -> float:
        return self.income_s / self.share if self.share else 0.0

    def steps_to(self, num_steps: float) -> int:
        """The number of steps after which it holds the time of so many, if nothing is spent meanwhile."""
        return ceil((num_steps * self.step_s - self.left_s) / self.income_s) if self.income_s else 0
