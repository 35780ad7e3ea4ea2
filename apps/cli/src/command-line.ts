import { type Command, CommanderError } from "commander";
import { makeProgram } from "./program.ts";

/** Runs a command line; resolves with its exit code. */
export async function runCommandLine(args: readonly string[]): Promise<number> {
  let exitCode = 0;
  let ran: Command | undefined;
  const program = makeProgram((load) => async (...args) => {
    ran = args.at(-1) as Command;
    exitCode = await (await load())(ran);
  });
  try {
    await program.parseAsync(args, { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    const { reportError } = await import("./report-error.ts");
    return reportError(error, ran?.parent?.name());
  }
}
