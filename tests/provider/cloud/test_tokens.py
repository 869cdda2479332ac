from __future__ import annotations

import threading

import pytest

from lightgate.clock.source import ManualClock
from lightgate.errors import CredentialsError
from lightgate.provider.cloud.signer import Ask, NoToken
from lightgate.provider.cloud.tokens import NS, AccessToken, TokenKeeper, TokenKeepers
from lightgate.provider.secret import Secret

ASK = Ask("POST", "h", "/", (), ())
SECRET = "client~secret.of-the-app"


class Source:
    """A cloud that gives tokens of a known life, or fails."""

    def __init__(self, clock: ManualClock, life_s: float = 3600) -> None:
        self.clock = clock
        self.life_s = life_s
        self.given = 0
        self.error: Exception | None = None

    def __call__(self) -> AccessToken:
        if self.error is not None:
            raise self.error
        self.given += 1
        until = self.clock.wall_ns() + int(self.life_s * NS)
        return AccessToken(Secret(f"token-{self.given}"), until)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source(clock: ManualClock) -> Source:
    return Source(clock)


@pytest.fixture
def keeper(source: Source, clock: ManualClock) -> TokenKeeper:
    found = TokenKeeper("vertex", source, clock=clock, hide=(Secret(SECRET),))
    found._thread = threading.current_thread()  # no thread of its own: the test renews
    return found


def test_a_token_is_renewed_five_minutes_before_its_end(keeper: TokenKeeper) -> None:
    assert keeper.renew() == 3300
    assert keeper.sign(ASK) == (("authorization", "Bearer token-1"),)
    assert [secret.reveal() for secret in keeper.secrets] == ["token-1"]


def test_a_short_token_is_renewed_at_half_of_it(keeper: TokenKeeper, source: Source) -> None:
    source.life_s = 240
    assert keeper.renew() == 120
    source.life_s = 0.5
    assert keeper.renew() == 1


def test_without_a_token_a_request_fails_at_once(keeper: TokenKeeper) -> None:
    with pytest.raises(NoToken) as caught:
        keeper.sign(ASK)
    assert caught.value.message == "There is no access token for vertex now."
    assert caught.value.status == 503
    assert caught.value.label == "no_token"
    assert keeper.secrets == ()


def test_a_failed_renewal_keeps_the_old_token_until_its_end(
    keeper: TokenKeeper, source: Source, clock: ManualClock
) -> None:
    keeper.renew()
    source.error = OSError("unreachable")
    clock.advance(3300 * NS)
    assert [keeper.renew() for _ in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    assert keeper.sign(ASK) == (("authorization", "Bearer token-1"),)
    clock.advance(300 * NS)
    with pytest.raises(NoToken, match="OSError: unreachable"):
        keeper.sign(ASK)
    source.error = None
    assert keeper.renew() == 3300
    assert keeper.sign(ASK) == (("authorization", "Bearer token-2"),)


@pytest.mark.parametrize(
    "said",
    [
        f"client_secret {SECRET} is wrong",
        "assertion eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJzYUBwcm9qIn0.AAAABBBBCCCCDDDDEEEEFFFF refused",
        "bad key -----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n",
        "token ya29.a0AfH6SMBxyzabcdefghijklmnop123",
    ],
)
def test_a_failure_is_logged_without_what_it_repeats(
    keeper: TokenKeeper, source: Source, caplog: pytest.LogCaptureFixture, said: str
) -> None:
    source.error = ValueError(said)
    keeper.renew()
    assert "no new token for vertex: ValueError" in caplog.text
    for word in (SECRET, "eyJhbGciOiJSUzI1NiJ9", "AAAABBBB", "MIIEvQ", "a0AfH6SMB"):
        assert word not in caplog.text
        with pytest.raises(NoToken) as caught:
            keeper.sign(ASK)
        assert word not in caught.value.message


def test_the_thread_fetches_and_nobody_else_waits(clock: ManualClock) -> None:
    asked, may = threading.Event(), threading.Event()

    def slow() -> AccessToken:
        asked.set()
        assert may.wait(30)
        return AccessToken(Secret("t"), clock.wall_ns() + 3600 * NS)

    keeper = TokenKeeper("slow-one", slow, clock=clock)
    keeper.start()
    keeper.start()
    assert asked.wait(30)
    with pytest.raises(NoToken):  # while the thread waits, a request does not
        keeper.sign(ASK)
    with pytest.raises(CredentialsError, match=r"no answer within 0\.01 s"):
        keeper.ready(0.01)
    may.set()
    keeper.ready(30)
    assert keeper.sign(ASK) == (("authorization", "Bearer t"),)
    assert sum(thread.name == "token-slow-one" for thread in threading.enumerate()) == 1


def test_not_ready_says_why(source: Source, clock: ManualClock) -> None:
    source.error = RuntimeError("no credentials were found. Look at your settings")
    keeper = TokenKeeper("v", source, clock=clock)
    with pytest.raises(CredentialsError, match="RuntimeError: no credentials were found"):
        keeper.ready(30)


def test_one_keeper_for_all_targets_of_a_credential(source: Source) -> None:
    keepers = TokenKeepers()
    one = keepers.one(("google", ""), lambda: TokenKeeper("a", source))
    assert keepers.one(("google", ""), lambda: TokenKeeper("b", source)) is one
    other = keepers.one(("google", "file"), lambda: TokenKeeper("c", source))
    keepers.keep_only([other, None])
    assert one._ended.is_set()
    assert not other._ended.is_set()
    assert keepers.one(("google", ""), lambda: TokenKeeper("d", source)) is not one


def test_a_first_failure_waits_two_seconds_and_a_success_begins_anew(
    keeper: TokenKeeper, source: Source
) -> None:
    source.error = OSError("unreachable")
    assert [keeper.renew(), keeper.renew()] == [2, 4]
    assert keeper.tried.is_set()
    source.error = None
    keeper.renew()
    source.error = OSError("unreachable")
    assert keeper.renew() == 2


def test_a_token_ends_at_its_instant(keeper: TokenKeeper, clock: ManualClock) -> None:
    keeper.renew()
    clock.advance(3600 * NS - 1)
    assert keeper.sign(ASK)
    clock.advance(1)
    with pytest.raises(NoToken):
        keeper.sign(ASK)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(), "OSError"),
        (OSError(""), "OSError"),
        (OSError(" \n"), "OSError"),
        (KeyError(7), "KeyError"),
        (OSError("The host is away.\nAsk again."), "OSError: The host is away"),
        (OSError(f"It knows {SECRET} now"), "OSError: It knows *** now"),
        (OSError(f"It knows {'Ab1' * 30} now"), "OSError: It knows *** now"),
    ],
)
def test_the_reason_why_there_is_no_token_is_one_line_without_secrets(
    keeper: TokenKeeper, source: Source, error: Exception, said: str
) -> None:
    source.error = error
    keeper.renew()
    with pytest.raises(NoToken) as caught:
        keeper.sign(ASK)
    assert caught.value.message == f"There is no access token for vertex now: {said}."
