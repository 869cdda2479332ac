from __future__ import annotations

import numbers_page


def test_the_page_of_numbers_has_every_constant() -> None:
    numbers_page.check("clock")
