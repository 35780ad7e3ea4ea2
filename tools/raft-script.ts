/**
 * Runs one data-driven Raft script and prints it with the actual output in place:
 *
 *     npm run raft:script -- FILE
 *
 * The first command determines the kind of script: quorum arithmetic (committed, vote), membership
 * (simple, enter-joint, leave-joint) or whole nodes (anything else).
 */
import { readFileSync } from "node:fs";
import { ConfChangeCommands } from "./raft-script/conf-change-commands.ts";
import type { Directive } from "./raft-script/directive.ts";
import { InteractionCommands } from "./raft-script/interaction-commands.ts";
import { handleQuorumCommand } from "./raft-script/quorum-commands.ts";
import { type CommandHandler, runScript } from "./raft-script/run-script.ts";

/** The script with the output of this implementation in place of what it came with. */
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

function main(file: string | undefined): void {
  if (file === undefined) {
    console.error("usage: npm run raft:script -- FILE");
    process.exitCode = 2;
    return;
  }
  try {
    process.stdout.write(runRaftScript(readFileSync(file, "utf8")));
  } catch (error) {
    console.error(
      `raft:script: cannot run ${file}: ${error instanceof Error ? error.message : error}`,
    );
    process.exitCode = 1;
  }
}

if (import.meta.main) main(process.argv[2]);
