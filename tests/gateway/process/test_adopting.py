"""Which files of learned form a worker takes in, and how often."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lightgate.gateway.process.sharing import FOLDER, FormSharing
from lightgate.route.form.forms import Forms

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000


def worker(data: Path, number: int) -> FormSharing:
    forms = Forms({})
    forms.first("a/m", 0, number * S, S // 4)
    return FormSharing(data, number, forms, lambda: 100 * S)


def test_each_change_of_another_worker_s_file_is_taken_in_once(tmp_path: Path) -> None:
    workers = [worker(tmp_path, number) for number in (1, 2, 3)]
    for one in workers:
        one.share()
    first = workers[0]
    assert first.adopt() == 2
    assert first.adopt() == 0
    assert first.adopt(own=True) == 1  # what it wrote itself, as at a start
    assert first.adopt(own=True) == 0
    changed = next(path for path in (tmp_path / FOLDER).iterdir() if "3" in path.name)
    os.utime(changed, ns=(5, 5))
    assert first.adopt() == 1


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    workers = [worker(tmp_path, number) for number in (1, 2, 3)]
    for one in workers:
        one.share()
    paths = sorted((tmp_path / FOLDER).glob("*.json"))
    assert len(paths) == 3
    paths[1].write_bytes(b"{")
    assert workers[0].adopt() == 1
    paths[1].unlink()
    paths[1].mkdir()
    assert workers[0].adopt() == 0
    assert workers[2].adopt() == 1


def test_the_form_is_written_where_it_has_changed(tmp_path: Path) -> None:
    one = worker(tmp_path, 1)
    content = one.news()
    assert content is not None
    one.keep(content)
    assert one.news() is None
    one._forms.first("a/m", 0, 9 * S, S // 4)
    assert one.news() not in {None, content}
