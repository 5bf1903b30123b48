"""What simulated runs share: seeds and failures, faults, the checker of partitions, surveys."""
