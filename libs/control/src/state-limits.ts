import { settingValue } from "@heddle/contracts/settings";
import { HARDENED } from "./cluster-version.ts";
import { type ControlCommand, type Refusal, refuse } from "./command.ts";
import { HashedMap, storedBytes } from "./hashed-map.ts";
import type { ControlState } from "./state.ts";

/**
 * What each kind of record may take of the setting `state_mib`. The rest is for the sessions, answers
 * and secrets beside the control state, which have bounds of their own.
 */
const STATE_KINDS = {
  jobs: { maps: ["jobs", "specs", "tasks", "events"], share: 0.7 },
  catalog: {
    maps: ["keys", "models", "deployments", "removedModels", "settings", "joins"],
    share: 0.1,
  },
  cluster: { maps: ["nodes", "servers", "projects", "queues", "replicas"], share: 0.1 },
} as const satisfies Record<
  string,
  { readonly maps: readonly (keyof ControlState)[]; readonly share: number }
>;

export type StateKind = keyof typeof STATE_KINDS;

/** Of the jobs' share, what submissions may fill: the rest is for tasks and events of jobs taken in. */
const SUBMISSION_SHARE = 0.8;
/** Of the jobs' share, what events may take before the oldest are dropped. */
const EVENT_SHARE = 0.1;
/** Kept free for the record and the events of a job beside its spec. */
const JOB_RECORD_BYTES = 4_096;
/** Kept free for each task of a start, with its exit. */
const TASK_RECORD_BYTES = 1_024;

type MapName = (typeof STATE_KINDS)[StateKind]["maps"][number];

/** The maps of a state; those that are absent take nothing. */
type Bounded = Readonly<Partial<Record<MapName, ReadonlyMap<string, unknown>>>> & {
  readonly settings: ReadonlyMap<string, { readonly value: number }>;
};

/** How much of its limit each kind takes, in bytes. */
export function stateUse(
  state: Bounded,
): Record<StateKind, { readonly bytes: number; readonly limit: number }> {
  const kinds = Object.keys(STATE_KINDS) as StateKind[];
  const use = (kind: StateKind) => ({ bytes: bytesOf(state, kind), limit: limitOf(state, kind) });
  return Object.fromEntries(kinds.map((kind) => [kind, use(kind)])) as ReturnType<typeof stateUse>;
}

/** Why a job with this spec cannot be taken in for want of room. */
export function submissionRefusal(state: Bounded, spec: object): Refusal | undefined {
  const wanted = storedBytes(JSON.stringify(spec)) + JOB_RECORD_BYTES;
  return refusalOf(state, "jobs", wanted, SUBMISSION_SHARE);
}

/** Whether there is room for the records of so many tasks that start. */
export function hasRoomForTasks(state: Bounded, tasks: number): boolean {
  return bytesOf(state, "jobs") + tasks * TASK_RECORD_BYTES <= limitOf(state, "jobs");
}

/** Whether the events take more than their part, so that the oldest must make room. */
export function hasTooManyEvents(state: Bounded): boolean {
  return mapBytes(state.events) > EVENT_SHARE * limitOf(state, "jobs");
}

/** Why a command that would make a new record of the catalog or the cluster cannot be applied. */
export function growthRefusal(state: ControlState, command: ControlCommand): Refusal | undefined {
  const kind = addsRecord(state, command) ? addedKind(command.type) : undefined;
  if (kind === undefined) return undefined;
  return refusalOf(state, kind, storedBytes(JSON.stringify(command)), 1);
}

/** The version from which on the state is bounded in bytes. */
export const BOUNDED_FROM = HARDENED;

const ADDED_KINDS: Partial<Record<ControlCommand["type"], StateKind>> = {
  "job.submit": "jobs",
  "key.create": "catalog",
  "key.rotate": "catalog",
  "join.create": "catalog",
  "model.register": "catalog",
  "node.join": "cluster",
  "server.join": "cluster",
  "project.set": "cluster",
  "queue.set": "cluster",
};

/** Of which kind are the records that such commands add; undefined where they add none. */
export function addedKind(type: ControlCommand["type"]): StateKind | undefined {
  return ADDED_KINDS[type];
}

/** Whether the command would add a record of the catalog or the cluster; jobs are looked at as they come in. */
function addsRecord(state: ControlState, command: ControlCommand): boolean {
  switch (command.type) {
    case "key.create":
    case "key.rotate":
    case "join.create":
      return true;
    case "model.register":
      return !state.models.has(command.model.id);
    case "node.join":
      return !state.nodes.has(command.offer.id);
    case "server.join":
      return !state.servers.has(command.server.id);
    case "project.set":
      return !state.projects.has(command.name);
    case "queue.set":
      return !state.queues.has(command.queue.name);
    default:
      return false;
  }
}

function refusalOf(
  state: Bounded,
  kind: StateKind,
  wanted: number,
  share: number,
): Refusal | undefined {
  const [used, limit] = [bytesOf(state, kind), Math.floor(share * limitOf(state, kind))];
  if (used + wanted <= limit) return undefined;
  const message = `the masters' state holds ${used} bytes of ${kind}, this needs ${wanted} more, and the limit is ${limit}; remove what is not needed, or raise the cluster setting state_mib`;
  return refuse("insufficient_storage", message);
}

function bytesOf(state: Bounded, kind: StateKind): number {
  return STATE_KINDS[kind].maps.reduce((sum, name) => sum + mapBytes(state[name]), 0);
}

function limitOf({ settings }: Bounded, kind: StateKind): number {
  return Math.floor(STATE_KINDS[kind].share * settingValue(settings, "state_mib") * 2 ** 20);
}

function mapBytes(map: ReadonlyMap<string, unknown> | undefined): number {
  return map instanceof HashedMap ? map.bytes : 0;
}
