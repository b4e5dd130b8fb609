"""Show the defaults of the signature where a docstring lists choices."""

import griffe


class Defaults(griffe.Extension):
    """Griffe extension: the first choice in a docstring is not the default."""

    def on_package(self, *, pkg, loader, **kwargs):
        """Correct the parameter tables of all functions and classes after loading."""
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
