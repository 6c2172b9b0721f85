"""The process and its machine: processor, threads, garbage collector."""
