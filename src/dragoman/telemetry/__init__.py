"""What a node says about itself: metrics and log lines."""
