"""Steps that go by without a word to the controller, which only wants to know how many they were."""
from dataclasses import dataclass

from penstock.compute.decoding.control.contract import Control


@dataclass(slots=True)
class Rest:
    """`left`: steps that are still to go by so; whoever makes one takes it off. `begin` after the controller's `ended` and `forget`,
    `end` before it is told anything else."""

    control: Control
    left: int = 0
    heard: int = 0  # of a rest's last steps, those that somebody else wants to hear of
    _untold: int = 0  # steps that were left when the controller last heard of any

    def begin(self) -> None:
        self.left = self._untold = self.control.rests()

    def end(self) -> None:
        if self._untold > self.left:
            self.control.passed(self._untold - self.left)
            self._untold = self.left
