"""Pages for browsing the results of one configuration (`granularity explore`)."""
