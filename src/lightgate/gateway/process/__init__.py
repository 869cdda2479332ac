"""The processes of `lightgate up`: worker, supervisor, journal, probes, logs."""
