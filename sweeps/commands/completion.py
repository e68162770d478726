"""`ranksweep completion SHELL`: the completion of commands, flags and names, by shtab."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence

from rank_core.data.load import COLLECTIONS
from rank_core.encoders.shipped import TRAINED, UNTRAINED
from rank_core.evaluate import WORKING
from rank_core.lines import put_program
from rank_core.models import MODELS
from rank_core.own_code import announced
from rank_core.settings.config import declared_settings, setting_types
from sweeps.commands.known import COMMANDS, Command, sweep_names
from sweeps.plan.options import FLAG_SETTINGS
from sweeps.plan.profiles import PROFILES
from sweeps.plan.reference import PREFIX, references
from sweeps.plan.search_options import SEARCHES
from sweeps.terminal.command_line import SCRIPT, Parser

SHELLS = ("bash", "zsh")
MEASURES = tuple(name for name in WORKING if name.replace("@", "").isalnum())
"""Measures whose names a shell reads as they are."""
NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "question": lambda: [*sweep_names(), *(f"{PREFIX}{name}" for name in references())],
    "collection": lambda: [*COLLECTIONS, *announced("collection")],
    "model": lambda: [*MODELS, *announced("model")],
    "backbone": lambda: [TRAINED, UNTRAINED],
    "measures": lambda: MEASURES,
    "profile": lambda: PROFILES,
    "search": lambda: SEARCHES,
    "settings": lambda: [f"{name}=" for name in setting_types() if name != "seed"],
}
"""{argument of a command: the names that are offered for it}; files are offered beside them."""
FLAG_OF = {setting: flag for flag, setting in FLAG_SETTINGS.items()} | {
    "evaluation.measures": "measures"
}
"""{setting: the argument whose names are its values too}"""
BASH_FUNCTION = """
{function}() {{
  compgen -W "{words}" -- "$1"
  compgen -f -- "$1"
}}"""
BASH_END = """
# A setting is followed by its value, without a space; other words may be files. Of several values
# the last one is completed. bash replaces what stands behind the last =, or from the
# last @ on.
_ranksweep_complete() {
  local line=${COMP_LINE:0:COMP_POINT} word=${COMP_WORDS[COMP_CWORD]} value
  line=${line##*[[:space:]]}
  if [[ $line != [a-z]*=* ]]; then
    _shtab_ranksweep
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace +o filenames
    return 0
  fi
  [[ $word == [=@:] ]] && word=
  local values=${line#*=} fixed=${line%"$word"}
  fixed=${fixed%@}
  local last=${values##*,}
  COMPREPLY=()
  compopt +o filenames  # which would quote @ and commas
  for value in $(compgen -W "$(_ranksweep_values "${line%%=*}")" -- "$last"); do
    value=${line%"$last"}$value
    COMPREPLY+=("${value#"$fixed"}")
  done
}
complete -o filenames -o default -F _ranksweep_complete ranksweep
"""
ZSH_FUNCTION = """
{function}() {{
  compadd -- {words}
  _files
}}"""
ZSH_SETTINGS = """
{function}() {{
  if compset -P '*='; then
    local -a values=($(_ranksweep_values ${{IPREFIX%%=*}}))
    compset -P '*,'
    compadd -a values || _files
  else
    compadd -S '' -- {words}
  fi
}}"""
VALUES = """
_ranksweep_values() {{
  case $1 in
{cases}
  esac
}}"""
"""A function of both shells."""


def main(argv: Sequence[str]) -> int:
    """Print a script by which bash or zsh completes commands, their flags, the names of sweeps,
    collections, models and settings, and the values of settings. It is for a file: one that
    ~/.bashrc sources, or _ranksweep in a folder of zsh's fpath. For the open shell: eval
    "$(ranksweep completion bash)"."""
    shell = parser().parse_args(argv).shell
    import shtab

    text = shtab.complete(_whole(), shell, preamble=_functions(shell))
    # For an argument that may be repeated shtab writes what zsh reads as one optional argument.
    put_program(text + BASH_END if shell == "bash" else text.replace('"(*)::', '"*:'), end="")
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep completion`."""
    parser = Parser("ranksweep completion", main.__doc__)
    parser.add_argument("shell", choices=SHELLS, help="the shell: bash or zsh")
    return parser


def _whole() -> argparse.ArgumentParser:
    """One parser with a subparser for each command, as shtab reads it."""
    whole = argparse.ArgumentParser(SCRIPT)
    commands = whole.add_subparsers()
    for command in COMMANDS.values():
        commands.add_parser(
            command.name,
            parents=_offering(command),
            help=command.does,
            description=command.does,
            add_help=False,  # that of the parents
            conflict_handler="resolve",
        )
    return whole


def _offering(command: Command) -> list[argparse.ArgumentParser]:
    """The parser of a command, declaring for shtab what is offered for its arguments: their names
    and files, or files alone; none where the libraries of the command are not installed."""
    import shtab

    try:
        parser = command.parser()
    except ImportError:
        return []
    for action in parser._actions:
        if action.choices is None and action.nargs != 0 and action.type in (None, str):
            function = f"_{SCRIPT}_{action.dest}"
            known = action.dest in NAMES
            vars(action)["complete"] = dict.fromkeys(SHELLS, function) if known else shtab.FILE
    return [parser]


def _functions(shell: str) -> str:
    """The shell's functions that offer names, and the values of settings."""
    forms = {"bash": BASH_FUNCTION, "zsh": ZSH_FUNCTION}
    settings = {"bash": BASH_FUNCTION, "zsh": ZSH_SETTINGS}
    parts = []
    for name, names in NAMES.items():
        form = (settings if name == "settings" else forms)[shell]
        parts.append(form.format(function=f"_{SCRIPT}_{name}", words=" ".join(names())))
    cases = (f"  {name}) echo {' '.join(values)} ;;" for name, values in known_values().items())
    return "\n".join([*parts, VALUES.format(cases="\n".join(cases))])


def known_values() -> dict[str, tuple[str, ...]]:
    """{setting: its values, or those that the package knows}, of settings with known values."""
    found: dict[str, tuple[str, ...]] = {}
    for declared in declared_settings():
        if declared.name in FLAG_OF and FLAG_OF[declared.name] in NAMES:
            found[declared.name] = tuple(NAMES[FLAG_OF[declared.name]]())
        elif isinstance(declared.rule, tuple) and declared.rule:
            found[declared.name] = declared.rule
        elif declared.kind is bool:
            found[declared.name] = ("true", "false")
    return found
