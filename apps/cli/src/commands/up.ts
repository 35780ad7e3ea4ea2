import type { Command } from "commander";
import { watchInterrupts } from "../interrupt.ts";
import { terminal } from "../output/terminal.ts";
import { WORKSPACE_PROGRAMS } from "../up/cluster-plan.ts";
import { parseUpOptions, type UpFlags } from "../up/options.ts";
import { runUp } from "../up/run-up.ts";

/** `heddle up`: a cluster on this machine, until Ctrl-C. */
export async function up(command: Command): Promise<number> {
  const options = parseUpOptions(command.opts<UpFlags>());
  const output = { data: terminal(process.stdout), messages: terminal(process.stderr) };
  const interrupts = watchInterrupts({ untilLeft: true });
  try {
    return await runUp(options, WORKSPACE_PROGRAMS, output, {
      stop: interrupts.signal,
      onForce: interrupts.onNext,
    });
  } finally {
    interrupts.release();
  }
}
