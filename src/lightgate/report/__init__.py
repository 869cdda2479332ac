"""Reports show what was measured: tables, curves, files and pages. They read records only."""
