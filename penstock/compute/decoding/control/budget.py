"""Time that is earned with each step and may be spent on what yields no tokens."""
from dataclasses import dataclass
from math import ceil, inf


@dataclass(slots=True)
class Budget:
    """Seconds. `left_s` falls below zero where something took longer than expected: then nothing is spent until that is earned back."""

    share: float = 0.0  # of a step's time that it earns
    left_s: float = 0.0
    income_s: float = 0.0  # of a step
    _most_s: float = inf

    def earn_from(self, step_s: float, most_s: float) -> None:
        """A step takes `step_s`, and no more than `most_s` is saved."""
        self.income_s, self._most_s = self.share * step_s, most_s

    def add(self, num_steps: int) -> None:
        """This many steps were made."""
        self.left_s = min(self.left_s + self.income_s * num_steps, self._most_s)

    def steps_to(self, steps: float) -> int:
        """The number of steps after which it holds the time of so many steps, if nothing is spent meanwhile."""
        missing_s = steps * self.income_s / self.share - self.left_s
        return ceil(missing_s / self.income_s) if self.income_s else 0

    def spend(self, seconds: float) -> None:
        self.left_s -= seconds
