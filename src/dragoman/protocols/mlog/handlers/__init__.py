"""mlog requests: each is checked, handed to the broker and answered."""
