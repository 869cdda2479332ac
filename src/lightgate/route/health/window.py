"""Two counts over the last seconds, in buckets of equal length."""

from __future__ import annotations


class CountWindow:
    """Counts of the last `buckets` x `bucket_ns`; a jump of the clock ahead empties it.

    Time that goes back is counted into the newest bucket: a count is never lost to it.
    """

    __slots__ = (
        "_bucket_ns", "_buckets", "_first", "_newest", "_place", "_second", "_until_ns",
        "first", "second",
    )  # fmt: skip

    def __init__(self, buckets: int, bucket_ns: int) -> None:
        self._buckets = buckets
        self._bucket_ns = bucket_ns
        self._newest: int | None = None  # number of the newest bucket, counted from instant 0
        self._place = 0  # of that bucket
        self._until_ns = -(2**63)  # its end; none has begun
        self._first = [0] * buckets
        self._second = [0] * buckets
        self.first = 0
        self.second = 0

    def add(self, now_ns: int, first: int, second: int) -> None:
        """Count into the bucket of this instant."""
        if now_ns >= self._until_ns:
            self._turn(now_ns // self._bucket_ns)
        place = self._place
        self._first[place] += first
        self._second[place] += second
        self.first += first
        self.second += second

    def turn(self, now_ns: int) -> None:
        """Forget what is too old; `first` and `second` are then those of this instant."""
        if now_ns >= self._until_ns:
            self._turn(now_ns // self._bucket_ns)

    def clear(self) -> None:
        """Forget all."""
        self._first = [0] * self._buckets
        self._second = [0] * self._buckets
        self.first = self.second = 0

    def _turn(self, number: int) -> None:
        """Go on to a later bucket."""
        newest = self._newest
        if newest is None or number - newest >= self._buckets:
            self.clear()
        else:
            for passed in range(newest + 1, number + 1):
                place = passed % self._buckets
                self.first -= self._first[place]
                self.second -= self._second[place]
                self._first[place] = self._second[place] = 0
        self._newest = number
        self._place = number % self._buckets
        self._until_ns = (number + 1) * self._bucket_ns
