import { ConfChangeCommands } from "./conf-change-commands.ts";
import type { Directive } from "./directive.ts";
import { InteractionCommands } from "./interaction-commands.ts";
import { handleQuorumCommand } from "./quorum-commands.ts";
import { type CommandHandler, runScript } from "./run-script.ts";

/** The script with the output of this implementation in place of the one in the text. */
export function runRaftScript(text: string): string {
  let handler: CommandHandler | undefined;
  return runScript(text, (directive) => {
    handler ??= handlerFor(directive);
    return handler(directive);
  });
}

function handlerFor({ command }: Directive): CommandHandler {
  if (command === "committed" || command === "vote") return handleQuorumCommand;
  if (command === "simple" || command === "enter-joint" || command === "leave-joint") {
    const commands = new ConfChangeCommands();
    return (directive) => commands.handle(directive);
  }
  const commands = new InteractionCommands();
  return (directive) => commands.handle(directive);
}
