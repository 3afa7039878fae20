"""What a configuration makes: label spaces, trainings, jobs, and what each asks of a machine."""
