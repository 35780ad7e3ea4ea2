import type { JobProgress } from "@heddle/contracts/api/job-replies";
import type { JobRecord, ProgressRecord } from "@heddle/control/jobs/records/records";
import type { SeenProgress } from "../../nodes/progress/progress-book.ts";
import { isoOrNull } from "../../orchestration/scheduling/explanation-view.ts";

/** A job's progress and its expected end. */
export function viewProgress(job: JobRecord, seen: SeenProgress): JobProgress {
  const { atMs, step, totalSteps, loss, reward, stepsPerSecond, tokensPerSecond, message } =
    seen.latest;
  return {
    progress: shareOf(seen.latest) ?? null,
    step: step ?? null,
    total_steps: totalSteps ?? null,
    loss: loss ?? null,
    reward: reward ?? null,
    steps_per_second: stepsPerSecond ?? null,
    tokens_per_second: tokensPerSecond ?? null,
    backend: seen.latest.backend ?? null,
    device: seen.latest.device ?? null,
    bytes_pushed: seen.latest.bytesPushed ?? null,
    metrics: seen.latest.metrics ?? {},
    message: message ?? null,
    at: isoOrNull(atMs),
    expected_end: isoOrNull(expectedEndMs(job, seen)),
  };
}

function shareOf({ progress, step, totalSteps }: ProgressRecord): number | undefined {
  if (progress !== undefined) return progress;
  if (step === undefined || totalSteps === undefined || totalSteps <= 0) return undefined;
  return Math.min(1, step / totalSteps);
}

/**
 * Extrapolates the speed since the attempt's first reading here, which may have resumed from a
 * checkpoint. With one reading, it uses the job's own estimate, or the speed since its start.
 */
function expectedEndMs(job: JobRecord, { latest, first }: SeenProgress): number | undefined {
  const { atMs, step, totalSteps, stepsPerSecond } = latest;
  const share = shareOf(latest);
  const firstShare = first && shareOf(first);
  if (share !== undefined && first && firstShare !== undefined && share > firstShare) {
    return Math.round(atMs + ((atMs - first.atMs) * (1 - share)) / (share - firstShare));
  }
  if (stepsPerSecond && step !== undefined && totalSteps !== undefined) {
    return Math.round(atMs + (Math.max(0, totalSteps - step) / stepsPerSecond) * 1_000);
  }
  if (share === undefined || share <= 0 || job.startedAtMs === undefined) return undefined;
  return Math.round(atMs + (Math.max(0, atMs - job.startedAtMs) * (1 - share)) / share);
}
