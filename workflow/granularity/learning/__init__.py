"""Training: pretraining on a label space, then finetuning on the target; one loop, recipes as data."""
