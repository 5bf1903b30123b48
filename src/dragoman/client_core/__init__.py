"""What clients of every protocol share: connections, retries, settings and blocking faces.

- A channel pipelines requests up to a bound and matches each reply to its request; a connection
  is made when it is needed, made again after a loss and closed for good.
- Calls are repeated with growing pauses until their time is up.
- Blocking clients run on an event loop in a thread of its own.

It lies below the protocols, whose clients build on it; `dragoman.client` lies above them and has
the public names only.
"""
