"""The form of one target: how soon its first token comes, how fast it decodes, how often it fails.

Times to first token are kept as logarithms, in two layers. Each prompt size has a long run, which
moves slowly; the target as a whole has one deviation from it, the weather, which moves fast and is
forgotten in minutes. So a probe of 16 tokens also says that long prompts are slow just now.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, exp, log, pi, sqrt
from typing import TYPE_CHECKING, Final

from lightgate.route.admission.in_flight import InFlightLimit
from lightgate.route.form.change import FAR, SLACK, ChangeDetector, Slowdown
from lightgate.route.form.cold import ColdStarts
from lightgate.route.form.lateness import Lateness
from lightgate.route.form.pace import PaceCurve
from lightgate.route.form.prior import DOUBTFUL, Z80
from lightgate.route.form.reading import STEPS
from lightgate.route.form.size import ENOUGH, FIRST_BITS, OFFSETS, SIZES, PromptSize
from lightgate.route.form.wait import WaitCurve
from lightgate.route.health.window import CountWindow

if TYPE_CHECKING:
    from lightgate.route.form.prior import Prior

NS: Final = 1e9
ALPHA: Final = 0.12  # weight of a new sample in the short run
SETTLED: Final = 9  # samples: a younger short run is a plain mean of what it holds
TOGETHER: Final = 4.0  # attempts that wait at once: what more of them say, they say in common
CLIP: Final = 1.0  # of a residual: one stall, however long, moves the belief by e^0.12
SPREAD_ALPHA: Final = 0.03
SPREAD_CLIP: Final = 4.0  # of a squared residual
SQRT2: Final = sqrt(2.0)
ROOT_2PI: Final = sqrt(2.0 * pi)
MEAN_TO_SIGMA: Final = sqrt(pi / 2.0)  # of a normal variable's mean deviation
STILL: Final = 1.3  # times as late as it was when it was closed a silent attempt would have been
CUT: Final = 0.4  # log: an attempt that was closed would have needed half as long again
CUT_CHANGED: Final = 0.7  # and as long again, where it is a sign of a change
GUESSED: Final = 0.5  # weight of the first sample of a prompt size that others have told of
OUT_OF_FORM: Final = 0.7  # log above the long run: twice as slow
NARROWEST: Final = 0.3  # sigma of times to first token that change detection assumes at least
NARROWEST_SPEED: Final = 0.15  # and of speeds, which scatter less
FORGET_S: Final = 180.0  # what was seen counts e^(-age/180 s), the long run the rest
LONG_S: Final = 6 * 3600.0  # the long run's own memory
FAILURE_S: Final = 5.0  # a failure counts as a first token that late, at least
ERRORS: Final = 0.1  # of ERROR_WEIGHT: half a percent, before anything failed
ERROR_WEIGHT: Final = 20.0
ERROR_KEEP: Final = 0.97  # of old errors and successes, at each new one
LEAST_ALONE: Final = 0.3  # of the expected time: what is left of a first token without its wait
OVERDUE: Final = 2.0  # times the usual first token, beyond it and the wait
PEERS_NS: Final = 1_000_000_000  # time constant in which other workers' counts fade
TOLD_NS: Final = 3_000_000_000  # for which an engine's own count of its requests is believed
TRIALS: Final = 3  # whole answers after which a newcomer is one of the others
LEAST_TOKENS: Final = 8  # of an answer that says something about decode speed
GLANCE_NS: Final = 1_000_000_000  # for which a prediction is good: 0.6 % is forgotten in it
ALONE_NS: Final = 10_000_000_000  # without a whole answer
CLOSE_NS: Final = 10_000_000  # two instants so near to each other are one
Z99: Final = 2.3263478740408408
DEADLINE: Final = 4.0  # times the 99 % of a target's first tokens: later it is taken for dead
DEADLINE_FLOOR_S: Final = 2.0
RATE: Final = -1.0 / (FORGET_S * NS)  # times an age in nanoseconds: log of what is remembered
NEVER: Final = -(1 << 62)
SINCE_NEVER_NS: Final = 1 << 61  # an age that large is the age of nothing
SOONEST_S: Final = 1e-4  # a first token is not taken to come sooner: its logarithm would be endless
SOONEST_LOG: Final = log(SOONEST_S)
NOTHING: Final[Sequence[float]] = (1.0,) * (SIZES * STEPS)  # is read longer than anything else


# What is believed of a target, as plans keep it: expected first token by prompt size, the part of
# that which failures made (of its logarithm), seconds per token, samples by prompt size, the
# instant of the last one, the share of failures.
Belief = tuple[Sequence[float], float, float, Sequence[int], int, float]


class Form:
    """The form of one target. Instants in nanoseconds of one monotonic clock.

    The second group of attributes is what decisions read; `look` brings it up to date, but for the
    load, which is always that of this instant. A method that takes something in returns whether the
    belief has changed for good, so that plans made before it should not be used any more.
    """

    __slots__ = (
        "_beside",
        "_calm_ns",
        "_change",
        "_foreign",
        "_peers",
        "_peers_ns",
        "_since",
        "_speed_change",
        "_speed_since",
        "_spoke_ns",
        "_told_ns",
        "belief",
        "changed_ns",
        "cold",
        "curve",
        "deviation",
        "ends",
        "errors",
        "far",
        "in_flight",
        "last_ns",
        "limit",
        "load",
        "mean",
        "misses",
        "noise",
        "p_error",
        "pace",
        "penalty",
        "prior",
        "reads",
        "recent",
        "shared",
        "sizes",
        "slowdown",
        "slowness",
        "speed_deviation",
        "speed_last_ns",
        "speed_long",
        "speed_seen",
        "speed_variance",
        "tail",
        "trouble",
        "ttfts_s",
        "until_ns",
        "variance",
        "waiting",
        "watched",
    )

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        sigma = prior.ttft_sigma
        self.sizes = tuple([PromptSize(prior.ttft_log + offset, sigma) for offset in OFFSETS])
        self.deviation = 0.0  # at last_ns
        self.penalty = 0.0  # the part of it that failures made
        self.recent = Lateness()
        self.variance = sigma * sigma
        self.noise = max(sigma, 0.05)  # sigma without stalls and changes
        self.last_ns = NEVER
        self._change, self._speed_change = ChangeDetector(), ChangeDetector()
        self._since = self._speed_since = SETTLED  # samples that the short run holds
        self._calm_ns = NEVER  # when a first token was last about as expected
        self.changed_ns = NEVER  # and when it was before the last change
        self.slowdown = Slowdown()
        self.speed_long = prior.speed_log
        self.speed_variance = prior.speed_sigma**2
        self.speed_deviation = 0.0
        self.speed_seen = 0
        self.speed_last_ns = NEVER
        self.errors = self.ends = 0.0
        self.in_flight = 0
        self.waiting: dict[int, int] = {}  # start of an attempt without a token: in flight then
        self.curve, self.pace = WaitCurve(), PaceCurve()
        self.cold = ColdStarts()
        self.shared = False  # whether others than this worker may have requests here
        self.watched = True  # whether one more may wait though few are in flight
        self._spoke_ns = NEVER  # start of the youngest attempt that had a first token
        self._foreign, self._told_ns = 0, NEVER  # others' requests by the engine, and when
        self._beside, self._peers, self._peers_ns = 0, 0, NEVER  # other workers' requests
        self.limit = InFlightLimit()
        self.trouble = CountWindow(10, 3_000_000_000)  # failures, ends: of the last 30 s

        self.until_ns = NEVER  # until when the following is good
        # By size and step: expected (median) time to first token, and times as long for reading.
        self.ttfts_s, self.reads = list[float](), NOTHING
        self.far = 1.0  # times as much is the latest that it is waited for
        self.tail = 1.0  # times as much is the 80 % of it
        self.mean = 1.0  # ... and its mean: what a tail costs on average
        self.slowness = self.p_error = 0.0  # seconds per token; share of attempts that fail
        self.load = 1.0  # times as long is a first token of a newcomer taken to need
        self.belief: Belief = ((), 0.0, 0.0, (), NEVER, 0.0)  # never changed, only replaced
        self.misses: dict[object, float] = {}  # what was found out about service levels

    def use_prior(self, prior: Prior) -> None:
        """Take another prior; what was seen stays, what was not begins with the prior."""
        self.prior = prior
        if self.last_ns == NEVER:
            sigma = prior.ttft_sigma
            for size, offset in zip(self.sizes, OFFSETS, strict=True):
                size.long, size.variance = prior.ttft_log + offset, sigma * sigma
                size.delays.clear()
            self.variance, self.noise = sigma * sigma, max(sigma, 0.05)
        if not self.speed_seen:
            self.speed_long, self.speed_variance = prior.speed_log, prior.speed_sigma**2
        self.until_ns = NEVER

    # What is believed

    def look(self, now_ns: int) -> None:
        """Bring up to date what decisions read."""
        age = now_ns - self.last_ns
        weight = exp(age * RATE) if age > 0 else 1.0
        weather = exp(weight * self.deviation)
        sigma, recent = sqrt(self.variance), self.recent
        most = exp(Z80 * sigma) if recent.most is None else recent.most
        self.tail = most * (1.0 + weight * (recent.tail - 1.0))
        self.mean = exp(0.5 * min(self.noise, 1.5) ** 2) * (1.0 + weight * (recent.mean - 1.0))
        self.slowness = exp(0.5 * min(self.speed_variance, 0.5) - self.log_speed(now_ns))
        self.p_error = (weight * self.errors + ERRORS) / (weight * self.ends + ERROR_WEIGHT)
        self.far = DEADLINE * exp(Z99 * sigma)
        one, two, three = self.sizes
        ttfts_s = [exp(one.long) * weather, exp(two.long) * weather, exp(three.long) * weather]
        ttfts_s *= STEPS
        if not (one.reading.flat and two.reading.flat and three.reading.flat):
            self.reads = self._readings()
            ttfts_s = [ttft_s * reads for ttft_s, reads in zip(ttfts_s, self.reads, strict=True)]
        elif self.reads is not NOTHING:
            self.reads = NOTHING
        self.ttfts_s, seen = ttfts_s, [one.seen, two.seen, three.seen]
        self.misses.clear()
        self.watched = self.shared or self.cold.seconds > 0.0 or self.load != 1.0
        self.belief = (ttfts_s, self.penalty, self.slowness, seen, self.last_ns, self.p_error)
        self.until_ns = now_ns + GLANCE_NS

    def _readings(self) -> list[float]:
        """Return how many times as long first tokens take for what is read, by size and step."""
        costs = [size.reading.costs for size in self.sizes]
        return [exp(cost) for step in zip(*costs, strict=True) for cost in step]

    def due_ns(self, size: int) -> int | None:
        """Return how long a first token is waited for; None: nobody knows yet."""
        at = self.sizes[size % SIZES]
        if at.seen < ENOUGH or not at.reading.tried(size // SIZES):
            return None
        return int(max(DEADLINE_FLOOR_S, self.far * self.ttfts_s[size]) * NS)

    def fresh(self, now_ns: int) -> float:
        """Return how much of the belief is of today's weather: 1 after a sample, 0 long after."""
        age = now_ns - self.last_ns
        return exp(age * RATE) if age > 0 else 1.0

    def log_ttft(self, size: int, now_ns: int) -> float:
        """Return the logarithm of the expected (median) time to first token in seconds."""
        at = self.sizes[size % SIZES]
        return at.long + at.reading.costs[size // SIZES] + self.fresh(now_ns) * self.deviation

    def answered_s(self, size: int, now_ns: int) -> float:
        """Return the expected time to first token of an attempt that answers.

        For decisions a failure counts as slow; for a prediction of the first token it does not.
        """
        ttft_s = self.ttfts_s[size]
        if not self.penalty:
            return ttft_s
        return ttft_s * without(self.penalty, now_ns - self.last_ns)

    def sigmas(self, size: int, seconds: float) -> float:
        """Return a time to first token as sigmas from the long run of its size."""
        at = self.sizes[size % SIZES]
        off = log(max(seconds, SOONEST_S)) - at.long - at.reading.costs[size // SIZES]
        return off / max(self.noise, NARROWEST)

    def log_speed(self, now_ns: int) -> float:
        """Return the logarithm of the expected speed in tokens per second."""
        since_ns = self.speed_last_ns
        if self.deviation > OUT_OF_FORM and self.fresh(now_ns) * self.deviation > OUT_OF_FORM:
            # While probes say that the trouble lasts, so does the speed that was seen in it. One
            # that was only guessed is forgotten half as fast as without probes: then it is tried.
            known = self._speed_since > 1
            since_ns = max(since_ns, self.last_ns if known else (self.changed_ns + now_ns) // 2)
        age = now_ns - since_ns
        weight = exp(age * RATE) if age > 0 else 1.0
        return self.speed_long + weight * self.speed_deviation

    @property
    def full(self) -> bool:
        """Whether the target has as many requests in flight as it may, those of others included."""
        return self.limit.firm and self.in_flight + self._beside >= self.limit.most

    # What is seen. These run for every request: comparisons stand where min() and max() would cost
    # 0.1 us each.

    def started(self, began_ns: int) -> None:
        """Count an attempt that begins."""
        self.in_flight += 1
        if began_ns:
            self.cold.began(began_ns, alone=self.in_flight == 1)
            flying = round(self.flying(began_ns)) if self.shared else self.in_flight
            self.waiting[began_ns] = flying
            pace = self.pace
            if began_ns > pace.since_ns:
                pace.area += pace.flying * (began_ns - pace.since_ns)
                pace.since_ns = began_ns
            pace.flying = flying
        if self.speed_seen >= TRIALS or self.prior.weight > DOUBTFUL:
            self.load = 1.0
        else:  # a newcomer is not asked by many before it has answered: each one counts in full
            self.load = self.in_flight + 1.0
            self.watched = True

    def ended(self, began_ns: int, now_ns: int = 0) -> None:
        """Count an attempt that is over, however it went; `now_ns`: not known where it is 0."""
        self.waiting.pop(began_ns, None)
        pace = self.pace
        pace.streams.pop(began_ns, None)
        if self.cold.pauses:
            self.cold.over(began_ns)
        if self.in_flight:
            self.in_flight -= 1
            if now_ns > pace.since_ns:
                pace.area += pace.flying * (now_ns - pace.since_ns)
                pace.since_ns = now_ns
            pace.flying = self.flying(now_ns) if self.shared and now_ns else self.in_flight
            doubted = self.speed_seen < TRIALS and self.prior.weight <= DOUBTFUL
            self.load = self.in_flight + 1.0 if doubted else 1.0

    def flying(self, now_ns: int) -> float:
        """Return how many requests the target has: ours, and those of others where they are known.

        The count of other workers fades within a second; then they are taken to have as many each.
        """
        own = self.in_flight
        if now_ns - self._told_ns < TOLD_NS:
            return own + self._foreign
        if not self._peers:
            return own
        known = exp((self._peers_ns - now_ns) / PEERS_NS)
        return own + known * self._beside + (1.0 - known) * own * self._peers

    def told(self, busy: int, now_ns: int) -> None:
        """Take in how many requests the engine says it has, ours included."""
        self._foreign, self._told_ns = max(0, busy - self.in_flight), now_ns
        self.shared = self.watched = True

    def beside(self, flying: int, workers: int, at_ns: int) -> None:
        """Take in what other workers had in flight here at an instant."""
        self._beside, self._peers, self._peers_ns = flying, workers, at_ns
        self.shared = workers > 0 or self._told_ns != NEVER
        self.watched = self.watched or self.shared

    def wait_s(self, now_ns: int) -> float:
        """Return how long one more request would wait behind those in flight.

        Where several wait and nothing has come for far too long, it is at least as long as the
        oldest one waits.
        """
        flying = self.flying(now_ns) + 1.0 if self.shared else self.in_flight + 1.0
        curve = self.curve
        wait_s = 0.0 if flying <= curve.free else curve.seconds(flying)
        if self.cold.seconds and not self.in_flight:
            return wait_s + self.cold.next_s(now_ns)
        if len(self.waiting) > 1:  # one alone may have stalled: that is no queue
            oldest_ns = next(iter(self.waiting))
            if oldest_ns > self._spoke_ns:
                usual_s = self.ttfts_s[0]
                age_s = (now_ns - oldest_ns) / NS - usual_s
                if age_s > OVERDUE * usual_s + wait_s:
                    return age_s
        return wait_s

    def longer(self, now_ns: int) -> float:
        """Return the part of its time alone that each token of one more request takes longer."""
        return self.pace.more(self.flying(now_ns) if self.shared else self.in_flight)

    def first(self, size: int, now_ns: int, ttft_s: float) -> bool:
        """Take in the time of a useful first token."""
        at, step = self.sizes[size % SIZES], size // SIZES
        began_ns = now_ns - round(ttft_s * NS)
        flying = self.waiting.pop(began_ns, self.in_flight)
        self._spoke_ns = max(self._spoke_ns, began_ns)
        pace = self.pace
        pace.streams[began_ns] = pace.area + pace.flying * (now_ns - pace.since_ns), now_ns
        belief, reading = at.long + self.fresh(now_ns) * self.deviation, at.reading
        wait_s = self.curve.seconds(flying)
        usual_s = exp(belief + reading.costs[step]) + wait_s
        if self.cold.explains(began_ns, now_ns, ttft_s, usual_s):
            self.watched = True
            return False
        if flying > 1:  # it may have waited for the others
            reading.seen[step] += 1
        else:
            belief -= self._read(size, log(max(ttft_s, SOONEST_S)), now_ns)
        read = exp(reading.costs[step])
        alone_s = exp(belief) * read
        self.curve.saw(flying, ttft_s - alone_s, alone_s)
        late = ttft_s / (alone_s + wait_s)
        ttft_log = log(late) if late > SOONEST_S else SOONEST_LOG
        blur_s = wait_s + self.curve.hidden(flying)
        if blur_s:  # the more of it was spent waiting, the less it says of the rest
            ttft_log *= sqrt(alone_s / (alone_s + blur_s))
        ttft_log += belief
        self.recent.saw(late, alone_s, self.noise)
        if self.penalty:  # it goes as what it is a part of goes
            self.penalty *= (1.0 - ALPHA) * self.fresh(now_ns)
        changed = self._sample(at, now_ns, ttft_log)
        if changed:
            self.penalty = 0.0
        at.add(late * alone_s / read)
        self.errors *= ERROR_KEEP
        self.ends = self.ends * ERROR_KEEP + 1.0
        self.trouble.add(now_ns, 0, 1)
        return changed

    def waited(self, size: int, now_ns: int, at_least_s: float) -> None:
        """Take in an attempt that was closed before its first token: it took longer than that."""
        began_ns = now_ns - round(at_least_s * NS)
        usual_s = exp(self.log_ttft(size, now_ns))
        if self.cold.explains(began_ns, now_ns, STILL * at_least_s, usual_s):
            self.watched = True
            return
        flying = self.waiting.pop(began_ns, self.in_flight)
        belief = self.log_ttft(size, now_ns)
        alone_s = exp(belief)
        late = at_least_s / (alone_s + self.curve.seconds(flying))
        least_log = log(max(late * alone_s, SOONEST_S))
        if least_log > belief:  # less than what is expected says nothing
            sigma = max(self.noise, NARROWEST)
            z = (least_log - belief) / sigma
            self.recent.saw(STILL * late, alone_s, self.noise)
            cut = min(CUT, sigma * beyond(z) - (least_log - belief))
            at, step = self.sizes[size % SIZES], size // SIZES
            if flying <= 1:
                self._read(size, least_log + cut, now_ns)
            value = least_log + cut - at.reading.costs[step]
            self._sample(at, now_ns, value, more=CUT_CHANGED - cut)

    def failed(self, size: int, now_ns: int, wait_s: float) -> None:
        """Take in a failure; for the belief it was slow, whatever time it took."""
        self.errors = self.errors * ERROR_KEEP + 1.0
        self.ends = self.ends * ERROR_KEEP + 1.0
        self.trouble.add(now_ns, 1, 1)
        slow = max(log(max(FAILURE_S, wait_s)), self.log_ttft(size, now_ns))
        fresh, at = self.fresh(now_ns), self.sizes[size % SIZES]
        before = fresh * (self.deviation - self.penalty)
        self._sample(at, now_ns, slow - at.reading.costs[size // SIZES], lasts=False)
        self.penalty = max(0.0, self.deviation - before)

    def finished(self, now_ns: int, tokens: int, decode_s: float, began_ns: int = 0) -> bool:
        """Take in the speed of a complete answer; `began_ns` is the start of its attempt."""
        if self.limit.firm:
            self.limit.answered(self.in_flight + self._beside, now_ns)
        if tokens < LEAST_TOKENS or decode_s <= 0.0:
            return False
        speed = log(tokens / decode_s)
        if self.in_flight > 1 or self.pace.learning or self.pace.drag:
            # What bad weather made slow says nothing about a batch.
            calm = self.deviation < FAR
            faster, moved = self.pace.ended(began_ns, now_ns, decode_s / tokens, calm=calm)
            speed += faster
            self.speed_long += moved
        weight = self.prior.weight
        newcomer = self.speed_seen < TRIALS and weight <= DOUBTFUL
        if newcomer and not self.speed_seen:
            self.speed_long, self.speed_deviation = speed, 0.0  # a guess ends with the first answer
        belief = self.log_speed(now_ns)
        step = _long_step(weight + self.speed_seen, now_ns - self.speed_last_ns)
        off = speed - self.speed_long
        long = self.speed_long + step * (CLIP if off > CLIP else -CLIP if off < -CLIP else off)
        self.speed_long = long
        self.speed_seen += 1
        if now_ns - decode_s * NS < self.changed_ns + CLOSE_NS:
            return newcomer  # begun before the weather changed: of the long run alone
        if self.deviation >= FAR:
            self.slowdown.saw(self.fresh(now_ns) * self.deviation, long - speed)
        self._speed_since += 1
        off = speed - belief
        alpha = max(ALPHA, 1.0 / min(weight + self.speed_seen, self._speed_since))
        clipped = CLIP if off > CLIP else -CLIP if off < -CLIP else off
        self.speed_deviation = belief + alpha * clipped - long
        sigma, square = sqrt(self.speed_variance), off * off
        z = off / (sigma if sigma > NARROWEST_SPEED else NARROWEST_SPEED)
        square = square if square < SPREAD_CLIP else SPREAD_CLIP
        self.speed_variance += SPREAD_ALPHA * (square - self.speed_variance)
        changed = self._speed_change.seen(z, speed - long)
        if changed is not None:
            self.speed_deviation, self._speed_since = changed, 3
        if now_ns > self.speed_last_ns:
            self.speed_last_ns = now_ns
        self.until_ns = NEVER
        return newcomer or changed is not None

    def _sample(
        self, at: PromptSize, now_ns: int, value: float, *, lasts: bool = True, more: float = 0.0
    ) -> bool:
        """Take in the log of a time to first token; `lasts`: for the long run as well.

        `more` is what it counts for beyond `value` once it is clear that something has changed.
        """
        noise, before = self.noise, self.deviation
        age = now_ns - self.last_ns
        belief = at.long + (exp(age * RATE) if age > 0 else 1.0) * before
        if lasts and not at.seen and any(size.seen for size in self.sizes):
            # What other prompt sizes say of this one is a guess: half of the rest is its own.
            guessed = GUESSED * (value - belief)
            at.long += guessed
            belief += guessed
        off = value - belief
        z = off / (noise if noise > NARROWEST else NARROWEST)
        if -SLACK < z < SLACK:
            self._calm_ns = now_ns
        if lasts:
            self._lasting(at, value, _long_step(self.prior.weight + at.seen, age))
        self._since += 1
        weight = self.prior.weight + at.seen
        # The plain mean of what the short run holds, then one that forgets.
        alpha = 1.0 / (weight if weight < self._since else self._since)
        alpha = alpha if alpha > ALPHA else ALPHA
        beside = len(self.waiting)
        if beside > TOGETHER:
            z *= TOGETHER / beside
            alpha *= TOGETHER / beside
        clipped = CLIP if off > CLIP else -CLIP if off < -CLIP else off
        self.deviation = belief + alpha * clipped - at.long
        if before > FAR and now_ns - self.speed_last_ns > ALONE_NS:
            # Only probes see it: its speed gets better, or worse, as its first tokens do.
            self.speed_deviation *= max(0.0, self.deviation / before)
        spread, square = (off if off > 0.0 else -off), off * off
        square = square if square < SPREAD_CLIP else SPREAD_CLIP
        self.variance += SPREAD_ALPHA * (square - self.variance)
        spread = spread if spread < 2.0 * noise else 2.0 * noise
        self.noise = noise + SPREAD_ALPHA * (MEAN_TO_SIGMA * spread - noise)
        changed = self._change.seen(z, value + more - at.long)
        if changed is not None:
            self._jump(changed, now_ns)
        if age > 0:
            self.last_ns = now_ns
        self.until_ns = NEVER
        return changed is not None

    def _read(self, size: int, ttft_log: float, now_ns: int) -> float:
        """Take in what a prompt of this step took; return by how much the long run falls for it.

        Larger prompt sizes that were never seen go on as the steps of this one do.
        """
        step, size = divmod(size, SIZES)
        at = self.sizes[size]
        reading, long = at.reading, at.long
        at.lower(reading.saw(step, ttft_log, self.noise, now_ns))
        if at.long == long:
            return 0.0
        longest = reading.longest
        there = at.long + reading.costs[longest]
        for further in range(size + 1, SIZES):
            other = self.sizes[further]
            if not other.seen:
                steps = FIRST_BITS[further] - FIRST_BITS[size] - longest
                usual = at.long + OFFSETS[further] - OFFSETS[size]
                other.long = max(usual, there + reading.slope * steps)
                other.reading.guess(reading.slope)
        return long - at.long

    def _jump(self, deviation: float, now_ns: int) -> None:
        """Follow a change of first tokens: as far as is known, the speed has changed as well."""
        jump = deviation - self.deviation
        self.deviation, self._since = deviation, 3
        self.changed_ns, self._speed_since = self._calm_ns, 1
        speed = self.log_speed(now_ns) - self.speed_long
        self.speed_deviation = self.slowdown.guess(speed, deviation, jump)

    def _lasting(self, at: PromptSize, value: float, step: float) -> None:
        """Move the long run of a size; sizes that were never seen follow the first one that is."""
        off = value - at.long
        square = off * off
        at.long += step * (CLIP if off > CLIP else -CLIP if off < -CLIP else off)
        square = square if square < SPREAD_CLIP else SPREAD_CLIP
        at.variance += (step if step < SPREAD_ALPHA else SPREAD_ALPHA) * (square - at.variance)
        if not at.seen:
            usual = OFFSETS[self.sizes.index(at)]
            for other, offset in zip(self.sizes, OFFSETS, strict=True):
                if other is not at and not other.seen:
                    other.long = at.long + offset - usual
        at.seen += 1


def without(penalty: float, age_ns: int) -> float:
    """Return the factor that takes the part of failures out of an expected first token."""
    return exp(-penalty * (exp(age_ns * RATE) if age_ns > 0 else 1.0))


def beyond(z: float) -> float:
    """Return the mean of a standard normal variable that is known to be above `z`."""
    later = max(0.5 * erfc(z / SQRT2), 1e-9)
    return exp(-0.5 * z * z) / (later * ROOT_2PI) if z < 5.0 else z


def _long_step(weight: float, age_ns: int) -> float:
    """Return the weight of a new sample in the long run, whose samples and prior have `weight`.

    A plain mean of all of them; later one that forgets in hours. `age_ns` is that of the last one.
    """
    mean = 1.0 / (weight + 1.0)
    if not 0 < age_ns < SINCE_NEVER_NS:
        return mean
    forgets = age_ns / NS / LONG_S
    forgets = forgets if forgets < 0.01 else 0.01
    return mean if mean > forgets else forgets
