import { writeSync } from "node:fs";
import { runCommandLine } from "./command-line.ts";

/**
 * Ends without a word once nobody reads what is written, as in `heddle models list | head -1`, and
 * with one where it can't be written, as on a full disk. A command that must end in order, as `up`
 * must, has a listener of its own and ends itself.
 */
function endAtBrokenPipe(stream: NodeJS.WriteStream): void {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") {
      writeSync(2, `heddle: cannot write the output: ${error.message}\n`);
      process.exit(1);
    }
    if (stream.listenerCount("error") === 1) process.exit();
  });
}

// Only the launcher that started this process on another Node holds a channel to it.
if (process.connected) (await import("@heddle/base/exit-with-parent")).exitWithParent();
endAtBrokenPipe(process.stdout);
endAtBrokenPipe(process.stderr);
process.exitCode = await runCommandLine(process.argv.slice(2));
