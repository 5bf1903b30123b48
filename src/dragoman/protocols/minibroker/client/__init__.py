"""The minibroker client; public names are in `dragoman.client.minibroker`."""
