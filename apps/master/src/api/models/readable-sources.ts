import { AppError } from "@heddle/base/errors";
import type { RegisterModelRequest } from "@heddle/contracts/api/models";
import { parseWeightsSource } from "@heddle/contracts/weights-source";
import type { ControlState } from "@heddle/control/state";
import type { Caller } from "../../http/identity/caller.ts";

/**
 * Refuses artifacts as weights that the caller could not download. The refusal is the same for
 * unknown jobs and for those of other projects.
 */
export function requireReadableSources(
  { source, weights }: Pick<RegisterModelRequest, "source" | "weights">,
  { grants }: Caller,
  { jobs }: Pick<ControlState, "jobs">,
): void {
  for (const [at, text] of (weights?.sources ?? [source ?? ""]).entries()) {
    const parsed = text.startsWith("artifact:") ? parseWeightsSource(text) : undefined;
    if (parsed?.kind !== "artifact") continue;
    const { jobId } = parsed;
    const job = jobs.get(jobId);
    const isReadable = job
      ? grants.may("jobs:read", job.project)
      : grants.mayEverywhere("jobs:read");
    if (isReadable) continue;
    const param = weights ? `weights.sources[${at}]` : "source";
    const message = `Invalid value for '${param}': no job has the id ${jobId}.`;
    throw new AppError("invalid_value", message, { param });
  }
}
