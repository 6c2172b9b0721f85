"""One module or package a command: it puts the libraries together, and holds nothing that two commands need."""
