"""What each provider family says on the wire: request builders, scanners, error answers. No I/O."""
