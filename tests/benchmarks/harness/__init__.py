"""What every benchmark scenario needs: processes, raw clients, bounds, sampling, reports."""
