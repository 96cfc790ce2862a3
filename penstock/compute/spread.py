"""What expert parallelism leaves to the busiest device: which share of its experts a step reads there, and how many rows it computes.

Experts are dealt to the devices of a group, equally many to each, and every step waits for the device that has most to do. All devices have
the rows already, since attention is divided by heads, and sum what they made of them as with tensor parallelism: nothing is sent apart.
"""
import math
from dataclasses import dataclass, field
from statistics import NormalDist

# How often the experts of a layer are chosen: the standard deviation over the mean. In DeepSeek-R1 over 32 devices of 8 experts each it is
# 0.48 (491.7 of 1,024 rows, mean of 58 layers: TensorRT-LLM, docs/source/blogs/tech_blog/blog4, "The effect of EP Load Balancer"); of one
# expert that is the square root of 8 times as much.
PREFERENCE = 1.36


@dataclass(frozen=True, slots=True)
class Spread:
    """`devices`: among which the experts are dealt; 1: each has all of them, and a part of every one."""

    experts: int
    active: int  # that a row is sent to
    devices: int = 1
    above: float = field(init=False)  # the largest of so many numbers, in standard deviations above their mean

    def __post_init__(self) -> None:
        # Blom, "Statistical Estimates and Transformed Beta-Variables", 1958
        object.__setattr__(self, "above", NormalDist().inv_cdf((self.devices - 0.375) / (self.devices + 0.25)) if self.devices > 1 else 0.0)

    def read(self, rows: float) -> float:
        """Share of a device's experts that a step reads: of the one that reads most. Every expert is taken to be as likely as the next
        (`compute/price.WeightReads`)."""
        share = 1 - math.pow(1 - self.active / self.experts, rows)
        if self.devices == 1:
            return share
        deviation = math.sqrt(max(0.0, share * (1 - share)) * self.devices / self.experts)
        least = math.ceil(self.active / self.devices) * self.devices / self.experts if rows >= 1 else 0.0  # a row's, dealt most evenly
        return min(1.0, max(least, share + self.above * deviation))

    def load(self, rows: float) -> float:
        """Rows that the device computes which has most of them, over the mean: some experts are chosen more often than others, and few rows
        are uneven by chance."""
        if self.devices == 1 or rows <= 0:
            return 1.0
        variance = PREFERENCE**2 * self.devices / self.experts + self.devices / (rows * self.active)
        return min(float(self.devices), 1 + self.above * math.sqrt(variance))

    def each(self, rows: float) -> float:
        """Rows that an expert is sent, on average of those that are sent any at all."""
        return max(1.0, rows * self.active / self.experts)
