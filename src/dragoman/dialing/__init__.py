"""What clients of every protocol share: connections, errors, an event loop for blocking code.

- A connection pipelines requests up to a bound and matches each reply to its request.
- Blocking clients run on an event loop in a thread of its own.
"""
