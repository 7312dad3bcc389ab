"""A package with a file of its own, since gmqtt installs one of the same name, which would be found instead."""
