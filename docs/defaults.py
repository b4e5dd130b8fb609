"""Defaults of parameters as the signature has them, where a docstring lists choices."""

import griffe


class Defaults(griffe.Extension):
    """A docstring's first choice is not taken for the default."""

    def on_package(self, *, pkg, loader, **kwargs):
        """Mend the tables of parameters of every function and class, once all is loaded."""
        _mend(pkg)


def _mend(thing):
    for member in thing.members.values():
        if member.is_alias:
            continue
        if member.is_function and not member.name.startswith("_"):
            _mend_docstring(member)
        _mend(member)


def _mend_docstring(member):
    if member.docstring is None:
        return
    for section in member.docstring.parsed:
        if section.kind is griffe.DocstringSectionKind.parameters:
            for parameter in section.value:
                if parameter.name in member.parameters:
                    default = member.parameters[parameter.name].default
                    parameter.value = None if default is None else str(default)
