"""Admission: the caller, its rights and limits, the plan and the reservation of one request."""
