import type { LogOptions } from "@heddle/client/resources/jobs/job-logs";
import type { LogEntry } from "@heddle/contracts/api/job-operations";
import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { watchInterrupts } from "../../interrupt.ts";
import { wholeNumberOf } from "../../number-flags.ts";
import { isRecordFormat, printStreamed } from "../../output/rows.ts";
import { drained } from "../../output/terminal.ts";
import { resolveJobId } from "./job-id.ts";

interface LogFlags {
  readonly follow?: boolean;
  readonly tail?: string;
  readonly since?: string;
  readonly rank?: string;
  readonly stream?: "stdout" | "stderr" | "both";
  readonly attempt?: string;
}

/** `heddle jobs logs <job>`: with several tasks each line starts with its rank. */
export async function printLogs(command: Command): Promise<number> {
  const { heddle, data, messages, format } = commandContext(command);
  const id = await resolveJobId(heddle, command.args[0]);
  const options = optionsOf(command.opts() as LogFlags);
  const interrupts = watchInterrupts();
  try {
    const { signal } = interrupts;
    const { tasks } = await heddle.jobs.get(id, { signal }).catch(forgotten);
    for await (const entry of heddle.jobs.logs(id, { ...options, signal })) {
      if (isRecordFormat(format)) printStreamed(entry, format, data);
      else if (entry.type === "line") data.writeForeign(lineOf(entry, tasks > 1));
      else
        messages.write(
          `${entry.bytes} bytes of ${entry.stream} of rank ${entry.rank} were dropped\n`,
        );
      await drained(process.stdout, signal);
    }
    return 0;
  } finally {
    interrupts.release();
  }
}

/** The logs of a forgotten job may still exist; reading them will show. */
function forgotten(error: unknown): { readonly tasks: number } {
  if ((error as { code?: string }).code === "not_found") return { tasks: 2 };
  throw error;
}

/** The line's own bytes, unchanged. */
function lineOf(line: LogEntry & { type: "line" }, isMany: boolean): Buffer {
  const { text, base64, rank, partial } = line;
  const bytes = base64 === undefined ? Buffer.from(text) : Buffer.from(base64, "base64");
  const head = Buffer.from(isMany ? `[${rank}] ` : "");
  return Buffer.concat([head, bytes, Buffer.from(partial ? "" : "\n")]);
}

function optionsOf({ follow, tail, since, rank, stream, attempt }: LogFlags): LogOptions {
  const ranks = rank?.split(",").map((part) => wholeNumberOf("--rank", part));
  return {
    follow,
    since,
    stream,
    rank: ranks,
    tail: tail === undefined ? undefined : wholeNumberOf("--tail", tail),
    attempt:
      attempt === undefined || attempt === "all" ? attempt : wholeNumberOf("--attempt", attempt),
  };
}
