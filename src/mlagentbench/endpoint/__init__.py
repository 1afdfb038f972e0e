"""Models for external programs: a loopback server with the APIs they know, backed by the run's model."""
