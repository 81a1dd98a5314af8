"""Largest number of samples in a request, where `batch: auto` leaves it to the client. Pure.

    a round at the size of now -> so many samples/s -> one at twice that -> 5 % more: that is the size now
                                                    -> one at half of it -> no fewer: that is the size now
                                                    -> else: back, and try again later

Only rounds count in which samples waited all the time: else the trainer is what takes the time, or the tail of a burst.
A trial that does not win costs one round, and the next is twice as many rounds away, so what is lost by trying becomes
as good as nothing. Where requests of a size take a good part of a sample's time, larger ones are not tried: their
answers would come too late.
"""

# A larger size must be this much faster than the one before it: rounds differ by some per cent on a quiet machine, and
# a smaller size is answered sooner.
GAIN = 1.05
# A round uses each slot so many times.
TURNS = 8
FIRST_PAUSE_ROUNDS = 16
LONGEST_PAUSE_ROUNDS = 256
# Where requests of a size take more than this share of a sample's `timeout`, a smaller size is used.
SLOW_SHARE = 1 / 16


class BatchSize:
    """Climbs to the size at which samples are answered fastest."""

    def __init__(self, *, slots: int, timeout: float, most: int) -> None:
        """`slots` is the requests in flight, `timeout` the seconds that a sample may take, `most` the largest size."""
        self._round_samples = TURNS * slots
        self._slots = slots
        self._slow_seconds = SLOW_SHARE * timeout
        self._most = most
        self._size = 1
        self._rate = 0.0
        """Samples a second in the last round at that size."""
        self._trial: int | None = None
        self._goes_up = True
        self._rounds_to_trial = 0
        self._pause_rounds = FIRST_PAUSE_ROUNDS
        self._began: float | None = None
        self._samples = 0
        self._settling = 0

    @property
    def limit(self) -> int:
        return self._trial or self._size

    def answered(self, samples: int, *, seconds: float, now: float, waiting: bool) -> None:
        """A request was answered, at `now` by one clock; `waiting` where more samples wait than there are slots."""
        if not waiting:
            self._begin(None)
            return
        if seconds > self._slow_seconds and self.limit > 1:
            self._size, self._trial = max(1, self.limit // 2), None
            self._give_up_trial()
            self._begin(None)
            return
        if self._settling > 0:  # of the round before, at its size
            self._settling -= 1
            self._began = now
            return
        if self._began is None:
            self._began = now
            return
        self._samples += samples
        if self._samples >= self._round_samples and now > self._began:
            self._round_ended(self._samples / (now - self._began))
            self._begin(now)

    def _begin(self, now: float | None) -> None:
        self._began = now
        self._samples = 0
        self._settling = 0 if now is None else self._slots

    def _round_ended(self, rate: float) -> None:
        if self._trial is not None and rate < (GAIN if self._trial > self._size else 1.0) * self._rate:
            self._trial = None
            self._goes_up = not self._goes_up
            self._give_up_trial()
            return
        if self._trial is not None:
            self._size, self._trial = self._trial, None
            self._pause_rounds = FIRST_PAUSE_ROUNDS
        self._rate = rate
        self._rounds_to_trial -= 1
        if self._rounds_to_trial < 0:
            self._trial = self._next()

    def _give_up_trial(self) -> None:
        self._rounds_to_trial = self._pause_rounds
        self._pause_rounds = min(LONGEST_PAUSE_ROUNDS, 2 * self._pause_rounds)

    def _next(self) -> int | None:
        if self._size == 1:
            self._goes_up = True
        elif self._size >= self._most:
            self._goes_up = False
        wanted = self._size * 2 if self._goes_up else self._size // 2
        return wanted if 1 <= wanted <= self._most else None
