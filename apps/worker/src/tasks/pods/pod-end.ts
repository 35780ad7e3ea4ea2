import type { RunnerEnd } from "../runners/program/messages.ts";
import type { RunnerPlace } from "../runners/runner-task.ts";
import type { Pod } from "./kubernetes-types.ts";

/** What Kubernetes says of a task's Pod, and of the end of a runner that has not reported it. */
export function podEnd(pod: Pod | undefined): RunnerPlace | undefined {
  if (!pod) return undefined;
  if (!isOver(pod)) return { isOver: false };
  const state = pod.status?.containerStatuses?.[0]?.state?.terminated;
  if (state?.reason === "OOMKilled") return { isOver: true, unheard: { outOfMemory: true } };
  const last = lastWords(state?.message);
  if (last) return { isOver: true, unheard: last };
  const { reason, message } = pod.status ?? {};
  const lostBy = [reason, message].filter(Boolean).join(": ");
  return { isOver: true, unheard: lostBy === "" ? undefined : { lostBy } };
}

/** Whether none of its containers runs any more. */
export function isOver({ status }: Pod): boolean {
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
