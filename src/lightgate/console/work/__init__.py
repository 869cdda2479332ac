"""What the console sets going and follows: races, benchmark runs, batches, advice."""
