"""What tests of captures share: tables, rows and events to capture, and capturing processes."""
