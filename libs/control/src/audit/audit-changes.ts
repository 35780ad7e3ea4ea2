import { ACCEPTED, type ControlReply, refuse } from "../command.ts";
import type { ControlState } from "../state.ts";
import type { AuditCommand } from "./records.ts";

/** Records of one command. */
export const MAX_RECORDS = 256;
/** A checkpoint with the signatures of two keys, and some of witnesses. */
const MAX_NOTE_CHARS = 8_192;

export function isAuditCommand(command: { readonly type: string }): command is AuditCommand {
  return command.type === "audit.record" || command.type === "events.checkpoint";
}

/** Deterministic; what is recorded becomes events, and no part of the state but their number. */
export function changeAudit(
  { cluster }: Pick<ControlState, "cluster">,
  command: AuditCommand,
): ControlReply {
  if (command.type === "audit.record") {
    return takeRecords(cluster, command);
  }
  const { size, note } = command;
  if (!Number.isSafeInteger(size) || note.length > MAX_NOTE_CHARS) {
    return refuse("invalid_value", "a checkpoint has a size and a note");
  }
  const events = (cluster.get("events") as number | undefined) ?? 0;
  if (size > events) return refuse("conflict", `there are ${events} events, not ${size}`);
  const known = checkpointSize(cluster.get("checkpoint"));
  if (size < known) return refuse("conflict", `a checkpoint covers ${known} events already`);
  cluster.set("checkpoint", note);
  return ACCEPTED;
}

/** Refuses a command that was applied before. */
function takeRecords(
  cluster: ControlState["cluster"],
  { records, master, batch }: Extract<AuditCommand, { type: "audit.record" }>,
): ControlReply {
  const { length } = records;
  if (length > MAX_RECORDS) {
    return refuse("invalid_value", `a command has at most ${MAX_RECORDS} records, got ${length}`);
  }
  const name = `batch:${master}` as const;
  const [process, last] = String(cluster.get(name) ?? "").split(" ");
  if (process === batch.process && batch.number <= Number(last))
    return { ok: true, wasThere: true };
  cluster.set(name, `${batch.process} ${batch.number}`);
  return ACCEPTED;
}

/** The number of events that a checkpoint covers; 0 without one. */
export function checkpointSize(note: unknown): number {
  return typeof note === "string" ? Number(note.split("\n", 2)[1]) : 0;
}
