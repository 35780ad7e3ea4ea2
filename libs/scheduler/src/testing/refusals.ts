import { CapacityBook, type CapacityRefusal } from "../cluster/capacity-book.ts";
import type { SchedulingInput } from "../cycle/scheduling-cycle.ts";
import type { GangStart } from "../model.ts";

/** The starts that apply would refuse on the input's snapshot, in the plan's order. */
export function refusals(
  { snapshot, queue, settings }: Omit<SchedulingInput, "nowMs">,
  starts: readonly GangStart[],
): { readonly jobId: string; readonly problem: CapacityRefusal | "unknown_job" }[] {
  const book = new CapacityBook();
  for (const node of snapshot.nodes) book.setNode(node);
  for (const { request, placements } of snapshot.running) {
    for (const place of placements) book.hold(request, place);
  }
  const jobs = new Map(queue.map((job) => [job.id, job]));
  return starts.flatMap(({ jobId, placements }) => {
    const job = jobs.get(jobId);
    jobs.delete(jobId);
    const problem = job
      ? book.take(job.request, job.tasks, placements, settings.overcommitRatio)
      : "unknown_job";
    return problem ? [{ jobId, problem }] : [];
  });
}
