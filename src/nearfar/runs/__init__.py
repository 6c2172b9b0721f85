"""A training run on disk and in time: its folder, its precision, its execution. Shared by train and finetune."""
