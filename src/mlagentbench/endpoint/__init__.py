"""Models for outside programs: a loopback endpoint in the dialects that they know, with our model behind it."""
