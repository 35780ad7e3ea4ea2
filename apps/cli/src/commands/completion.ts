import type { Command, Option } from "commander";
import { terminal } from "../output/terminal.ts";

/** A command's path from the program on, as `jobs submit`; empty for the program. */
interface Place {
  readonly path: string;
  readonly command: Command;
}

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript };

/** The shells for which there is a script. */
type Shell = keyof typeof SCRIPTS;

/** `heddle completion <shell>`: prints the script that completes commands, options and choices. */
export function printCompletion(command: Command): Promise<number> {
  const [shell = "bash"] = command.args as Shell[];
  const program = command.parent!;
  terminal(process.stdout).write(SCRIPTS[shell](placesOf(program, ""), program.options));
  return Promise.resolve(0);
}

function placesOf(command: Command, path: string): Place[] {
  const below = command.commands.flatMap((each) =>
    placesOf(each, path === "" ? each.name() : `${path} ${each.name()}`),
  );
  return [{ path, command }, ...below];
}

function flagsOf({ short, long }: Option): string[] {
  return [short, long].filter((flag) => flag !== undefined);
}

/** A `case` of a shell function: what it prints for each pattern. */
function cases(answers: readonly (readonly [pattern: string, words: readonly string[]])[]): string {
  return answers
    .filter(([, words]) => words.length > 0)
    .map(([pattern, words]) => `    ${pattern}) echo "${words.join(" ")}" ;;`)
    .join("\n");
}

function bashScript(places: readonly Place[], globals: readonly Option[]): string {
  const commands = places.map(({ path, command }) => {
    return [`"${path}"`, command.commands.map((each) => each.name())] as const;
  });
  const options = places.map(({ path, command }) => {
    const all = path === "" ? globals : [...command.options, ...globals];
    return [`"${path}"`, [...all.map(({ long }) => long ?? ""), "--help"]] as const;
  });
  const choices = places.flatMap(({ path, command }) => [
    ...command.options.flatMap((option) =>
      flagsOf(option).map((flag) => {
        const pattern = path === "" ? `*"|${flag}"` : `"${path}|${flag}"`;
        return [pattern, option.argChoices ?? []] as const;
      }),
    ),
    // The first argument comes right behind the command.
    [`"${path}|${command.name()}"`, argumentChoices(command)] as const,
  ]);
  return `_heddle_commands() {
  case "$1" in
${cases(commands)}
  esac
}
_heddle_options() {
  case "$1" in
${cases(options)}
  esac
}
_heddle_choices() {
  case "$1" in
${cases(choices)}
  esac
}
_heddle() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" at="" words word i
  # Bash takes the sign of --option=value as a word.
  if [ "$current" = "=" ]; then current=""
  elif [ "$previous" = "=" ]; then previous="\${COMP_WORDS[COMP_CWORD-2]}"; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    case " $(_heddle_commands "$at") " in
      *" $word "*) at="\${at:+$at }$word" ;;
    esac
  done
  words="$(_heddle_choices "$at|$previous")"
  if [ -z "$words" ]; then
    case "$current" in
      -*) words="$(_heddle_options "$at")" ;;
      *) words="$(_heddle_commands "$at")" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _heddle heddle
`;
}

function zshScript(places: readonly Place[], globals: readonly Option[]): string {
  return `(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
autoload -Uz bashcompinit && bashcompinit
${bashScript(places, globals)}`;
}

function fishScript(places: readonly Place[], globals: readonly Option[]): string {
  const groups = places.filter(({ command }) => command.commands.length > 0);
  const commands = groups.map(({ path, command }) => {
    return `    case ${quoted(path)}; string split " " ${quoted(namesOf(command).join(" "))}`;
  });
  const lines = places.flatMap(({ path, command }) => [
    ...command.commands.map(
      (each) => `${when(path)} -f -a ${each.name()} -d ${quoted(each.description())}`,
    ),
    ...argumentChoices(command).map((each) => `${when(path)} -f -a ${each}`),
    ...(path === "" ? [] : command.options).map((option) => `${when(path)} ${fishOption(option)}`),
  ]);
  return `function __heddle_commands
  switch "$argv"
${commands.join("\n")}
  end
end
function __heddle_at
  set -l at ""
  for word in (commandline -opc)[2..]
    if contains -- $word (__heddle_commands $at)
      set at (string trim "$at $word")
    end
  end
  test "$at" = "$argv"
end
${lines.join("\n")}
${globals.map((option) => `complete -c heddle ${fishOption(option)}`).join("\n")}
`;
}

const argumentChoices = (command: Command) => command.registeredArguments[0]?.argChoices ?? [];
const namesOf = (command: Command) => command.commands.map((each) => each.name());
const when = (path: string) => `complete -c heddle -n ${quoted(`__heddle_at ${quoted(path)}`)}`;

function fishOption({ short, long, description, required, argChoices }: Option): string {
  const names = [short && `-s ${short.slice(1)}`, long && `-l ${long.slice(2)}`];
  const values = argChoices ? `-x -a ${quoted(argChoices.join(" "))}` : required && "-r";
  return [...names, values, `-d ${quoted(description)}`].filter(Boolean).join(" ");
}

/** In single quotes for fish. */
function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
