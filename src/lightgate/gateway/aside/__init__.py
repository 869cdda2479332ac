"""Work on large bodies, in a process beside the worker, while its loop serves everybody else."""
