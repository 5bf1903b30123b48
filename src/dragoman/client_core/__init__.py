"""The parts that clients of all protocols share: connections, retries and blocking faces.

- A channel pipelines requests up to a bound and matches each reply to its request. A connection
  opens its channel when it is needed, and again after a loss.
- Calls are retried with growing pauses until their time-out.
- Blocking clients run on an event loop in a thread of their own.

It lies below the protocols, whose clients build on it; `dragoman.client` lies above them and has
the public names only.
"""
