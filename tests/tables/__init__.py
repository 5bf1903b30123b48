"""Values, batches and histories of tables for Spark, and readers of the source without Spark."""
