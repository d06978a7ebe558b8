from tests.faces.conftest import home, server

__all__ = ["home", "server"]
