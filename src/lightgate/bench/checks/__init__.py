"""The quality guard of `bench --checks`: the user's own cases, their checks, who passed what."""
