"""Batch APIs of providers: jobs are submitted, polled, cancelled and collected in one form."""
