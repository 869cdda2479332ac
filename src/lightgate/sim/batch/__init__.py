"""The batch APIs of simulated providers: files, jobs and results in the form of each provider."""
