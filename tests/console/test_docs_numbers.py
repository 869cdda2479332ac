from __future__ import annotations

import kept_tables
import numbers_page


def test_the_page_of_numbers_has_every_constant() -> None:
    numbers_page.check("console")


def test_the_tables_are_as_they_were_last_looked_at() -> None:
    kept_tables.check("console")
