import { ACCEPTED, type ControlReply, refuse } from "../../command.ts";
import type { RegisteredModelCommand } from "../records/commands.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";

/** Records the registered model of a succeeded job, or why there is none. */
export function noteModel(change: JobsTransaction, command: RegisteredModelCommand): ControlReply {
  const { jobId, modelId, fault } = command;
  const job = change.state.jobs.get(jobId);
  if (job?.state !== "succeeded") return refuse("not_found", `no job ${jobId} has succeeded`);
  const { index: changedIndex, atMs } = change.now;
  const model = fault === undefined ? { id: modelId, atMs } : { id: modelId, atMs, fault };
  change.putJob({ ...job, model, changedIndex });
  return ACCEPTED;
}
