import { writeSync } from "node:fs";
import { runCommandLine } from "./command-line.ts";

/**
 * Exits silently when the reader of the output has closed it, as in `heddle models list | head -1`.
 * Exits with a message if writing fails, as on a full disk. A command with a cleanup, such as `up`,
 * has its own listener.
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

// Only a launcher that started this process on another Node has a channel to it.
if (process.connected) (await import("@heddle/base/process/exit-with-parent")).exitWithParent();
endAtBrokenPipe(process.stdout);
endAtBrokenPipe(process.stderr);
process.exitCode = await runCommandLine(process.argv.slice(2));
