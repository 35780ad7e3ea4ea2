import { ACCEPTED, type ControlReply, refuse } from "../../command.ts";
import { newProject } from "../records/account-changes.ts";
import type { SetProjectCommand, SetQueueCommand } from "../records/commands.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";

const MAX_PROJECTS = 10_000;
const MAX_QUEUES = 1_000;
const NAME = /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/;
const NAME_FORM =
  "1 to 63 of a-z (lower case), 0-9, `.`, `_` and `-`, with a letter or digit at both ends";

/** Sets a project's weight and quota; its past usage stays. */
export function setProject(
  { state, now }: JobsTransaction,
  command: SetProjectCommand,
): ControlReply {
  const { name, weight, quota } = command;
  if (!NAME.test(name)) return refuse("invalid_value", `a project's name is ${NAME_FORM}`, "name");
  if (!(weight > 0 && weight <= 1e6)) {
    return refuse("invalid_value", `a weight is above 0, got ${weight}`, "weight");
  }
  if (!state.projects.has(name) && state.projects.size >= MAX_PROJECTS) {
    return refuse("conflict", `the cluster holds ${MAX_PROJECTS} projects`);
  }
  const project = state.projects.get(name) ?? newProject(name, now.atMs);
  state.projects.set(name, { ...project, weight, quota });
  return ACCEPTED;
}

export function setQueue({ state }: JobsTransaction, { queue }: SetQueueCommand): ControlReply {
  if (!NAME.test(queue.name)) {
    return refuse("invalid_value", `a queue's name is ${NAME_FORM}`, "name");
  }
  if (!state.queues.has(queue.name) && state.queues.size >= MAX_QUEUES) {
    return refuse("conflict", `the cluster holds ${MAX_QUEUES} queues`);
  }
  state.queues.set(queue.name, queue);
  return ACCEPTED;
}
