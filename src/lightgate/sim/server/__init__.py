"""The simulator as a server: ports, routes, certificates, child process."""
