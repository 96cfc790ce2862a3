"""What became of one request: when it was due, sent, answered. Times are seconds after the begin of the run."""
from array import array
from dataclasses import dataclass, field

BAD_REQUEST = 400
TOO_MANY_REQUESTS = 429


@dataclass(slots=True)
class Sample:
    """Filled in by the client while the answer comes.

    All latencies count from `due_s`, when the request should have been sent, not from when a busy client got round to it: a client that
    waits for a slow server would otherwise leave out the very requests that the slowness hits (coordinated omission; Tene).
    """

    number: int
    due_s: float
    turn: int = 0  # of its session
    sent_s: float | None = None
    first_s: float | None = None  # the first token came, hidden reasoning included
    visible_s: float | None = None  # the first token that a reader sees
    last_s: float | None = None  # the last token came
    end_s: float | None = None  # the answer was complete
    chunk_s: "array[float]" = field(default_factory=lambda: array("d"))  # when each piece of the answer came
    num_prompt: int | None = None
    num_output: int | None = None
    uncounted: bool = False  # the server told no number of tokens, and `num_output` is that of the pieces
    unstreamed: bool = False  # the answer came as a whole: nothing is known of when its tokens came
    num_cached: int = 0
    num_reasoning: int = 0  # of `num_output`, as the server counts them
    thought: bool = False  # pieces of the reasoning came: servers may keep it back, and count it all the same
    wanted_output: int | None = None
    finish_reason: str | None = None
    status: int | None = None  # HTTP's
    retry_after_s: float = 0.0  # before which the server will not be asked again
    connect_s: float = 0.0  # that its connections took, one that the server had closed included: the server's time, and the network's
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and self.end_s is not None

    @property
    def refused(self) -> bool:
        """The server would not take it in for now."""
        return self.status == TOO_MANY_REQUESTS

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.due_s

    @property
    def publish_s(self) -> float | None:
        """Time to publish: until a reader sees something."""
        return None if self.visible_s is None else self.visible_s - self.due_s

    @property
    def e2e_s(self) -> float | None:
        """Until the last token; without tokens, until the end of the answer."""
        last = self.end_s if self.last_s is None else self.last_s
        return None if last is None else last - self.due_s

    @property
    def num_streamed(self) -> int:
        """Output tokens that came in pieces: all but the reasoning, where none of that came."""
        count = self.num_output or 0
        return count - self.num_reasoning if not self.thought and self.num_reasoning < count else count

    @property
    def came_at_once(self) -> bool:
        """Several tokens came in one moment, as of answers that are chosen at their end: nothing is known of the time between them."""
        return self.num_streamed > 1 and self.first_s is not None and self.first_s == self.last_s

    @property
    def unseen(self) -> bool:
        """Its tokens had no text, so that no event held them: they are taken to have come with its end."""
        return self.came_at_once and self.visible_s is None

    @property
    def tpot_s(self) -> float | None:
        """Time per streamed token after the first; None for answers of fewer than two of them, or whose tokens came at once."""
        if self.first_s is None or self.last_s is None or self.num_streamed < 2 or self.came_at_once:
            return None
        return (self.last_s - self.first_s) / (self.num_streamed - 1)

    @property
    def send_delay_s(self) -> float | None:
        """By which the client was late; the time to connect is not its own."""
        return None if self.sent_s is None else self.sent_s - self.connect_s - self.due_s

    def gaps_s(self) -> list[float]:
        """Inter-token latencies: between one piece of the answer and the next; none where all came at once."""
        return [] if self.came_at_once else [later - earlier for earlier, later in zip(self.chunk_s, self.chunk_s[1:], strict=False)]

    def arrived(self, now_s: float, visible: bool = True) -> None:
        """A piece of the answer came that holds a token."""
        if self.first_s is None:
            self.first_s = now_s
        if visible and self.visible_s is None:
            self.visible_s = now_s
        self.last_s = now_s
        self.chunk_s.append(now_s)

    def fail(self, reason: str, now_s: float) -> None:
        self.error = reason
        self.end_s = now_s
