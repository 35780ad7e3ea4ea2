import type { Job } from "@heddle/contracts/api/job-replies";
import { STRINGS } from "../strings.ts";
import { formatCount, formatPercent } from "../ui/format.ts";
import { Meter } from "../ui/parts.tsx";

const text = STRINGS.jobs;

interface ProgressOptions {
  readonly job: Pick<Job, "progress">;
  /** Without the steps beside the share. */
  readonly isShort?: boolean;
}

/** The share that a job has reported, and its step. Many report their step alone. */
export function ReportedProgress({ job: { progress }, isShort = false }: ProgressOptions) {
  const { progress: share, step, total_steps: total } = progress ?? {};
  const of = total == null ? text.atStep : (at: string) => text.steps(at, formatCount(total));
  const steps = step == null ? "" : of(formatCount(step));
  if (share == null) return steps;
  const percent = formatPercent(share * 100);
  return <Meter share={share} text={isShort || steps === "" ? percent : `${percent}, ${steps}`} />;
}

export function hasProgress({ progress }: Pick<Job, "progress">): boolean {
  return progress?.progress != null || progress?.step != null;
}
