"""Admission: how many requests a target may be sent now, learnt from its answers."""
