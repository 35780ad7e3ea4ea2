import type { RunnerEnd } from "../runners/program/messages.ts";
import type { RunnerPlace } from "../runners/runner-task.ts";
import type { Pod } from "./kubernetes-types.ts";

/** What Kubernetes says of a task's Pod, and of the end of a runner that has not reported it. */
export function podEnd(pod: Pod | undefined): RunnerPlace | undefined {
  if (!pod) return undefined;
  if (!isPodEnded(pod)) return { isEnded: false };
  const state = pod.status?.containerStatuses?.[0]?.state?.terminated;
  if (state?.reason === "OOMKilled") return { isEnded: true, unreported: { outOfMemory: true } };
  const last = lastWords(state?.message);
  if (last) return { isEnded: true, unreported: last };
  const { reason, message } = pod.status ?? {};
  const lostBy = [reason, message].filter(Boolean).join(": ");
  return { isEnded: true, unreported: lostBy === "" ? undefined : { lostBy } };
}

/** Whether none of its containers runs any more. */
export function isPodEnded({ status }: Pod): boolean {
  return status?.phase === "Succeeded" || status?.phase === "Failed";
}

function lastWords(text = ""): RunnerEnd | undefined {
  try {
    const end = JSON.parse(text) as RunnerEnd | null;
    return end?.kind === "end" ? end : undefined;
  } catch {
    return undefined;
  }
}
