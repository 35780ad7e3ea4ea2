import type { TaskExit } from "@heddle/contracts/generated/heddle/v1/TaskExit";
import { TaskDirectory } from "./task-directory.ts";
import { checkedId, type TaskPlan } from "./task-plan.ts";

const PHASES = ["leased", "starting", "running", "stopping", "exited"] as const;
export type TaskPhaseName = (typeof PHASES)[number];

/** A task's stored state. */
export interface TaskMemory {
  readonly plan: TaskPlan;
  readonly phase: TaskPhaseName;
  readonly rendezvous: string;
  readonly startedUnixMs?: number | undefined;
  /** The executor's own. */
  readonly handle?: unknown;
  readonly exit?: TaskExit | undefined;
  /** The masters have its end in their log. */
  readonly forgotten?: boolean | undefined;
}

/**
 * The stored state in the task's directory. A program of the same user can write it too: undefined
 * where it is malformed, or of another task.
 */
export function taskMemory(
  value: unknown,
  directory: TaskDirectory,
  root: string,
): TaskMemory | undefined {
  const memory = value as Partial<TaskMemory> | null | undefined;
  const { plan, phase } = memory ?? {};
  if (!plan || !PHASES.some((each) => each === phase)) return undefined;
  if (typeof plan.spec?.executor !== "string" || !Array.isArray(plan.devices)) return undefined;
  try {
    const id = checkedId(plan.id);
    const numbers = [id.attempt, id.rank, id.incarnation ?? 0];
    if (!numbers.every((each) => Number.isSafeInteger(each) && each >= 0)) return undefined;
    return TaskDirectory.of(root, id).path === directory.path ? (memory as TaskMemory) : undefined;
  } catch {
    return undefined;
  }
}
