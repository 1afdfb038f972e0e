"""Programs that run inside a sandbox: stand-alone, standard library only."""
