"""The process and the machine it runs on: processor, threads, garbage collector."""
