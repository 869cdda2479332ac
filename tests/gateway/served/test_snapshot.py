"""The snapshot on disk: its mode, its lock, what cannot be read, and changes of a part of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.config.load import parse_config
from lightgate.gateway.served import snapshot as module
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import (
    FILE,
    SnapshotFailed,
    changing,
    priors_differ,
    put_snapshot,
    read_snapshot,
    refresh_keys,
    refresh_names,
    refresh_priors,
)
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.provider.catalogue import catalogue
from lightgate.route.form.prior import Prior

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.served.snapshot import Snapshot

KEY = new_key(KeyTerms(name="me"))[1]


def made(text: str = "") -> Snapshot:
    return make_snapshot(parse_config(text), (), {})


def prior(**changes: float) -> Prior:
    known = dict.fromkeys(Prior.__struct_fields__, 2.0) | {"ttft_ms": 100.0, "speed_tps": 50.0}
    return Prior(**{**known, **changes})


def test_a_snapshot_is_for_its_owner_alone_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    synced: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", synced.append)
        put_snapshot(folder, made())
        put_snapshot(folder, msgspec.structs.replace(made(), instance="x"))
    assert len(synced) == 2
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    assert read_snapshot(folder).instance == "x"
    assert set(os.listdir(folder)) == {FILE, f"{FILE}.spare"}


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with pytest.raises(SnapshotFailed) as caught:
        read_snapshot(tmp_path)
    assert caught.value.message == f"{path} cannot be read: No such file or directory."
    assert caught.value.label == "snapshot"
    for wrong in (b"", b"{}", b"[]", b'{"made_ns": "x", "providers": {}}'):
        path.write_bytes(wrong)
        with pytest.raises(SnapshotFailed, match="is not a snapshot"):
            read_snapshot(tmp_path)
    put_snapshot(tmp_path, msgspec.structs.replace(made(), version=2))
    with pytest.raises(SnapshotFailed, match="is of another version of Lightgate"):
        read_snapshot(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(SnapshotFailed, match="cannot be written: Is a directory"):
        put_snapshot(tmp_path, made())
    assert set(os.listdir(tmp_path)) == {FILE, f"{FILE}.spare"}
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotFailed, match=r"snapshot\.lock cannot be opened: "):
        refresh_keys(tmp_path / "file", ())


def test_other_keys_names_and_priors_leave_the_rest_alone(tmp_path: Path) -> None:
    refresh_keys(tmp_path, (KEY,))
    assert not (tmp_path / FILE).exists()  # no gateway runs
    before = msgspec.structs.replace(made(), made_ns=1, instance="i")
    put_snapshot(tmp_path, before)
    refresh_keys(tmp_path, (KEY,))
    after = read_snapshot(tmp_path)
    assert after == msgspec.structs.replace(before, keys=(KEY,), made_ns=after.made_ns)
    assert after.made_ns > 1
    other = msgspec.structs.replace(made(), names={"m": ("lab/m",)}, instance="other")
    refresh_names(tmp_path, other)
    named = read_snapshot(tmp_path)
    assert (named.names, named.keys, named.instance) == ({"m": ("lab/m",)}, (KEY,), "i")
    priors = {"lab/m": prior(ttft_ms=10.0)}
    assert refresh_priors(tmp_path, priors)
    assert not refresh_priors(tmp_path, priors)
    assert read_snapshot(tmp_path).priors == priors
    assert (tmp_path / "snapshot.lock").stat().st_mode & 0o777 == 0o600


def test_a_change_waits_for_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[int] = []
    monkeypatch.setattr(module.fcntl, "flock", lambda _, how: locked.append(how))  # type: ignore[attr-defined]
    refresh_keys(tmp_path, ())
    assert locked == [module.fcntl.LOCK_EX]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({}, False),
        ({"ttft_ms": 110.0}, False),  # exactly a tenth
        ({"ttft_ms": 110.1}, True),
        ({"ttft_ms": 89.9}, True),
        ({"speed_tps": 55.0}, False),
        ({"speed_tps": 44.9}, True),
        ({"weight": 2.19}, False),
        ({"weight": 2.3}, True),
    ],
)
def test_priors_differ_by_more_than_a_tenth(changes: dict[str, Any], differs: bool) -> None:
    one = {"lab/m": prior()}
    other = {"lab/m": msgspec.structs.replace(one["lab/m"], **changes)}
    assert priors_differ(one, other) is differs
    assert priors_differ(one, {})
    assert priors_differ({}, one)
    assert not priors_differ({}, {})
    assert not priors_differ(one, other, share=9.0)


def test_the_variables_that_hold_secrets() -> None:
    openai = catalogue()["openai"]
    reach = module.Reach(provider=openai, base_url="http://x", key_env="MY_KEY")
    assert reach.secret_variables == ("MY_KEY",)
    assert module.Reach(provider=openai, base_url="http://x").secret_variables == ()
    headed = msgspec.structs.replace(openai, headers=(("x-key", "env:OTHER"), ("plain", "text")))
    assert module.Reach(provider=headed, base_url="", key_env="K").secret_variables == (
        "K",
        "OTHER",
    )


def test_the_folder_of_a_snapshot_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    put_snapshot(tmp_path / "one" / "below", made())
    with changing(tmp_path / "two" / "below"):
        pass
    for name in ("one", "two"):
        assert (tmp_path / name / "below").stat().st_mode & 0o777 == 0o700
