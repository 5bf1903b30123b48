"""The mlog client; `dragoman.client.mlog` has its public names."""
