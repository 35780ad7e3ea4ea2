import { CapacityBook, type CapacityRefusal } from "../cluster/capacity-book.ts";
import type { SchedulingInput } from "../cycle/scheduling-cycle.ts";
import type { GangStart } from "../model.ts";
import { entryKey, type PlanEntry } from "../plan-entry.ts";

/** The starts that apply would refuse on the input's snapshot, in the plan's order. */
export function refusals(
  { snapshot, queue, settings }: Omit<SchedulingInput, "nowMs">,
  starts: readonly GangStart[],
): { readonly entry: PlanEntry; readonly problem: CapacityRefusal | "unknown_job" }[] {
  const book = new CapacityBook();
  for (const node of snapshot.nodes) book.setNode(node);
  for (const { request, placements } of snapshot.running) {
    for (const place of placements) book.hold(request, place);
  }
  const jobs = new Map(queue.map((job) => [entryKey(job.entry), job]));
  return starts.flatMap(({ entry, placements }) => {
    const job = jobs.get(entryKey(entry));
    jobs.delete(entryKey(entry));
    const problem = job
      ? book.take(job.request, job.tasks, placements, settings.overcommitRatio)
      : "unknown_job";
    return problem ? [{ entry, problem }] : [];
  });
}
