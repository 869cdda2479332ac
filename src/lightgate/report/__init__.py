"""What was measured, shown: tables, curves, files and pages. Reads records, measures nothing."""
