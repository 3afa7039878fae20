"""A folder of pages to look through one configuration's results (`granularity explore`)."""
