"""What everything else stands on: errors, progress, seeds, signals."""
