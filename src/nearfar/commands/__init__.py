"""One module or package for each command. Code that several commands need is in the other packages."""
