"""What the clients of every protocol share: connections, retries, settings and blocking faces.

It lies below the protocols, whose clients build on it; `dragoman.client` lies above them and holds
the public names only.
"""
