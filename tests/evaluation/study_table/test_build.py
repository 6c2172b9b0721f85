"""Values, means, intervals and tests of a study's table against plain loops."""
