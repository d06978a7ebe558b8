from tests.faces.conftest import home

__all__ = ["home"]
