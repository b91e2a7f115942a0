"""A method whose module cannot be imported, as happens with other people's packages."""

raise RuntimeError("this module is not finished")
