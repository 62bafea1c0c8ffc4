"""Speed and memory, side by side with peers in one run: `python -m benchmarks` prints a table and stores dated JSON."""
