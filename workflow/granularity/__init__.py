"""How the granularity of pretraining labels decides what a network learns: the stages of the workflow."""
