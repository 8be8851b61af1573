"""What ``scavenge report`` tells of a run: its events as bounded series, and these as plots and tables."""
