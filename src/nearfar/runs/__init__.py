"""Training runs, shared by train and finetune: their folders, records, precision and execution."""
