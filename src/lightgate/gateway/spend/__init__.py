"""Budgets and limits of keys: counters that workers share, prices, denials."""
