"""Links that are good once, and the sessions that they begin."""

from __future__ import annotations

import stat
import threading
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from lightgate.clock.source import ManualClock
from lightgate.console.admin.guesses import MOST_ADDRESSES, MOST_WRONG, WINDOW_NS, WrongGuesses
from lightgate.console.admin.sign_in import (
    FOLDER,
    IDLE_NS,
    LINK_NS,
    LONGEST_NS,
    MOST,
    NOTED_NS,
    SignIns,
    link_address,
)

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_790_000_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ns=T0)


@pytest.fixture
def sign_ins(tmp_path: Path, clock: ManualClock) -> SignIns:
    return SignIns(tmp_path, clock)


def test_a_link_begins_one_session(sign_ins: SignIns) -> None:
    code = sign_ins.new_link("up")
    made = sign_ins.redeem(code, "127.0.0.1")
    assert made is not None
    cookie, session = made
    assert (session.by, session.address) == ("up", "127.0.0.1")
    assert sign_ins.session_of(cookie) == session
    assert sign_ins.redeem(code, "127.0.0.1") is None
    assert sign_ins.session_of(code) is None
    assert sign_ins.session_of("") is None


def test_nothing_in_the_folder_opens_anything(sign_ins: SignIns, tmp_path: Path) -> None:
    code = sign_ins.new_link("up")
    made = sign_ins.redeem(sign_ins.new_link("up"), "127.0.0.1")
    assert made is not None
    folder = tmp_path / FOLDER
    kept = [path.name + path.read_text() for path in folder.iterdir()]
    assert len(kept) == 2
    assert not any(code in text or made[0] in text for text in kept)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    for path in folder.iterdir():  # what is read there is no code and no cookie
        digest = path.stem.partition("-")[2]
        assert sign_ins.redeem(digest, "") is None
        assert sign_ins.session_of(digest) is None


@pytest.mark.parametrize("wrong", ["", "x", "../supervisor", "a\0b", "\ud800", "é" * 100])
def test_a_wrong_code_is_refused(sign_ins: SignIns, wrong: str) -> None:
    sign_ins.new_link("up")
    assert sign_ins.redeem(wrong, "") is None
    assert sign_ins.session_of(wrong) is None


@pytest.mark.parametrize(
    ("passed_ns", "good"), [(LINK_NS - 1, True), (LINK_NS, False), (-1, False)]
)
def test_a_link_is_good_for_ten_minutes(
    sign_ins: SignIns, clock: ManualClock, passed_ns: int, good: bool
) -> None:
    code = sign_ins.new_link("up")
    clock.step_wall(passed_ns)
    assert (sign_ins.redeem(code, "") is not None) is good
    assert sign_ins.redeem(code, "") is None


def test_of_many_at_once_one_gets_in(sign_ins: SignIns) -> None:
    code, got, gate = sign_ins.new_link("up"), [], threading.Barrier(8)

    def try_it() -> None:
        gate.wait()
        got.append(sign_ins.redeem(code, ""))

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in got if one is not None]) == 1


def test_a_session_ends_when_nobody_uses_it(sign_ins: SignIns, clock: ManualClock) -> None:
    made = sign_ins.redeem(sign_ins.new_link("up"), "")
    assert made is not None
    cookie = made[0]
    clock.step_wall(IDLE_NS - 1)
    assert sign_ins.session_of(cookie) is not None  # and this use is noted
    clock.step_wall(IDLE_NS - 1)
    assert sign_ins.session_of(cookie) is not None
    clock.step_wall(IDLE_NS)
    assert sign_ins.session_of(cookie) is None


def test_a_session_ends_after_a_week(sign_ins: SignIns, clock: ManualClock) -> None:
    made = sign_ins.redeem(sign_ins.new_link("up"), "")
    assert made is not None
    step = IDLE_NS // 2
    for _ in range(LONGEST_NS // step):
        assert sign_ins.session_of(made[0]) is not None
        clock.step_wall(step)
    assert sign_ins.session_of(made[0]) is None


def test_a_clock_that_was_set_back_ends_sessions(sign_ins: SignIns, clock: ManualClock) -> None:
    made = sign_ins.redeem(sign_ins.new_link("up"), "")
    assert made is not None
    clock.step_wall(-2 * NOTED_NS)
    assert sign_ins.session_of(made[0]) is None


def test_ends(sign_ins: SignIns, tmp_path: Path) -> None:
    first, second = (sign_ins.redeem(sign_ins.new_link("up"), "") for _ in range(2))
    assert first is not None
    assert second is not None
    sign_ins.end(first[0])
    assert sign_ins.session_of(first[0]) is None
    assert sign_ins.session_of(second[0]) is not None
    code = sign_ins.new_link("up")
    assert SignIns(tmp_path, ManualClock(wall_ns=T0)).end_all() == 1  # of another process
    assert sign_ins.session_of(second[0]) is None
    assert sign_ins.redeem(code, "") is None


def test_there_are_only_so_many(sign_ins: SignIns, clock: ManualClock, tmp_path: Path) -> None:
    made = [sign_ins.redeem(sign_ins.new_link("up"), "") for _ in range(MOST + 3)]
    assert len(list((tmp_path / FOLDER).iterdir())) == MOST
    assert made[-1] is not None
    assert sign_ins.session_of(made[-1][0]) is not None
    clock.step_wall(LONGEST_NS)
    sign_ins.new_link("up")
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


def test_a_link_that_nobody_opened_is_deleted_with_the_next(
    sign_ins: SignIns, clock: ManualClock, tmp_path: Path
) -> None:
    sign_ins.new_link("up")
    (old,) = (tmp_path / FOLDER).iterdir()
    clock.step_wall(LINK_NS - 1)
    sign_ins.new_link("up")
    assert old.exists()
    clock.step_wall(1)
    sign_ins.new_link("up")
    assert not old.exists()
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


def test_what_another_process_deletes_meanwhile_is_no_trouble(
    sign_ins: SignIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(MOST):
        assert sign_ins.redeem(sign_ins.new_link("up"), "") is not None
    found = SignIns._files

    def and_gone(self: SignIns, *kinds: str) -> list[Path]:
        gone = [tmp_path / FOLDER / f"{kind}-gone.json" for kind in kinds]
        return [*found(self, *kinds), *gone]

    monkeypatch.setattr(SignIns, "_files", and_gone)
    code = sign_ins.new_link("up")
    # A file that is gone counts as the oldest: one session less has to give way for it.
    assert len(found(sign_ins, "session")) == MOST - 1
    assert sign_ins.redeem(code, "") is not None
    assert sign_ins.end_all() == MOST + 1  # what was gone is among them
    assert found(sign_ins, "session", "link") == []


def test_a_link_leads_to_the_address_that_people_have(sign_ins: SignIns) -> None:
    code = sign_ins.new_link("up")
    assert link_address("127.0.0.1", 8081, code) == f"http://127.0.0.1:8081/enter#{code}"
    assert link_address("0.0.0.0", 80, code) == f"http://127.0.0.1:80/enter#{code}"
    for base in ("https://gate.example/LX", "https://gate.example/LX/"):
        assert link_address("::1", 1, code, base) == f"https://gate.example/LX/enter#{code}"


def test_links_and_cookies_are_256_random_bits_and_only_their_digests_are_kept(
    tmp_path: Path, clock: ManualClock
) -> None:
    asked: list[int] = []

    def random(size: int) -> str:
        asked.append(size)
        return f"random-{len(asked)}"

    sign_ins = SignIns(tmp_path / "not" / "there", clock, random)
    code = sign_ins.new_link("up")
    (kept,) = sign_ins._folder.iterdir()
    assert kept.name == f"link-{sha256(code.encode()).hexdigest()}.json"
    entered = sign_ins.redeem(code, "")
    assert entered is not None
    assert asked == [32, 32]
    (kept,) = sign_ins._folder.iterdir()
    digest = sha256(b"random-2").hexdigest()
    assert (kept.name, entered[1].id) == (f"session-{digest}.json", digest[:8])


def test_links_and_sessions_are_bounded_whichever_is_made(
    sign_ins: SignIns, tmp_path: Path
) -> None:
    for _ in range(MOST - 1):
        assert sign_ins.redeem(sign_ins.new_link("up"), "") is not None
    codes = [sign_ins.new_link("up") for _ in range(MOST + 3)]
    assert len(list((tmp_path / FOLDER).glob("link-*"))) == MOST
    for code in codes[-5:]:
        assert sign_ins.redeem(code, "") is not None
    assert len(list((tmp_path / FOLDER).glob("session-*"))) == MOST


def test_a_use_is_noted_once_a_minute(sign_ins: SignIns, clock: ManualClock) -> None:
    entered = sign_ins.redeem(sign_ins.new_link("up"), "")
    assert entered is not None
    cookie, session = entered
    for step, used in ((NOTED_NS - 1, 0), (1, NOTED_NS), (5, NOTED_NS)):
        clock.advance(step)
        found = sign_ins.session_of(cookie)
        assert found is not None
        assert found.used_ns == session.used_ns + used
    assert not session.over(session.made_ns - NOTED_NS)
    assert session.over(session.made_ns - NOTED_NS - 1)


def test_a_session_that_is_ended_while_it_is_used_stays_ended(tmp_path: Path) -> None:
    class Ends(ManualClock):
        ended = False

        def wall_ns(self) -> int:
            if self.ended:
                sign_ins.end(cookie)
            return super().wall_ns()

    clock = Ends(wall_ns=T0)
    sign_ins = SignIns(tmp_path, clock)
    entered = sign_ins.redeem(sign_ins.new_link("up"), "")
    assert entered is not None
    cookie = entered[0]
    clock.advance(NOTED_NS)
    clock.ended = True  # from here on, after the file was read
    sign_ins.session_of(cookie)
    assert list((tmp_path / FOLDER).iterdir()) == []
    sign_ins.end(cookie)  # which is nothing new


def test_two_processes_write_a_session_under_names_of_their_own(
    sign_ins: SignIns, clock: ManualClock, tmp_path: Path
) -> None:
    entered = sign_ins.redeem(sign_ins.new_link("up"), "")
    assert entered is not None
    (kept,) = (tmp_path / FOLDER).iterdir()
    kept.with_name(f"{kept.name}.new").mkdir()  # where another would write
    clock.advance(NOTED_NS)
    sign_ins.session_of(entered[0])
    (noted,) = sign_ins._files("session")
    assert b'"used_ns":%d' % clock.wall_ns() in noted.read_bytes()


# Guesses


def test_an_address_waits_after_a_few_guesses(clock: ManualClock) -> None:
    guesses = WrongGuesses(clock)
    for _ in range(MOST_WRONG):
        assert guesses.wait_s("10.0.0.1") == 0
        guesses.note("10.0.0.1")
    assert guesses.wait_s("10.0.0.1") == WINDOW_NS // 1_000_000_000
    assert guesses.wait_s("10.0.0.2") == 0
    clock.advance(WINDOW_NS)
    assert guesses.wait_s("10.0.0.1") == 0


def test_the_last_guesses_count_and_a_part_of_a_second_is_waited_for(clock: ManualClock) -> None:
    guesses = WrongGuesses(clock)
    for _ in range(MOST_WRONG + 5):
        guesses.note("10.0.0.1")
        clock.advance(1_000_000_000)
    # The oldest of the last ten was made ten seconds ago.
    assert guesses.wait_s("10.0.0.1") == 50
    clock.advance(1)
    assert guesses.wait_s("10.0.0.1") == 50
    clock.advance(48_999_999_998)
    assert guesses.wait_s("10.0.0.1") == 2  # a nanosecond more than one
    clock.advance(1)
    assert guesses.wait_s("10.0.0.1") == 1
    clock.advance(1_000_000_000)
    assert guesses.wait_s("10.0.0.1") == 0


def test_the_zone_of_an_address_is_no_part_of_its_owner(clock: ManualClock) -> None:
    guesses = WrongGuesses(clock)
    for number in range(MOST_WRONG):
        guesses.note(f"fe80::1%eth{number}")
    assert guesses.wait_s("fe80::2") > 0


def test_the_addresses_of_one_owner_are_one(clock: ManualClock) -> None:
    guesses = WrongGuesses(clock)
    for number in range(MOST_WRONG):
        guesses.note(f"2001:db8::{number:x}")
    assert guesses.wait_s("2001:db8::ffff") > 0
    assert guesses.wait_s("2001:db8:0:1::1") == 0


def test_the_table_is_bounded(clock: ManualClock) -> None:
    guesses = WrongGuesses(clock)
    for number in range(MOST_ADDRESSES + 10):
        guesses.note(f"host-{number}")
    assert len(guesses._by_address) == MOST_ADDRESSES
