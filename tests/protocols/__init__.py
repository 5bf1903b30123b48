"""What tests of the protocols share: vectors, random messages, scripted servers and clients."""
