"""Plan a configuration: label spaces, trainings, jobs, and the resources of each job."""
