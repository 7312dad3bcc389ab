"""The pure core: what messages mean. No sockets, no clock, no packet layouts."""
