"""Where a pipeline's rows go. Each kind takes a micro-batch once, however often it gets it."""
