import { watchInterrupts } from "../interrupt.ts";
import { terminal } from "../output/terminal.ts";
import { reportError } from "../report-error.ts";
import { parseUpOptions } from "../up/options.ts";
import { runUp } from "../up/run-up.ts";

/** `heddle up` as a process of its own with the scripted processes; its flags are JSON. */
const program = (name: string) =>
  new URL(`./${name}${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url).pathname;
const programs = {
  master: program("scripted-master"),
  worker: program("scripted-worker"),
  "parameter-server": program("scripted-worker"),
};
const interrupts = watchInterrupts({ untilLeft: true });
try {
  const options = parseUpOptions(JSON.parse(process.argv[2] ?? "{}"));
  const output = { data: terminal(process.stdout), messages: terminal(process.stderr) };
  process.exitCode = await runUp(options, programs, output, {
    stop: interrupts.signal,
    onForce: interrupts.onNext,
  });
} catch (error) {
  process.exitCode = reportError(error);
} finally {
  interrupts.release();
}
