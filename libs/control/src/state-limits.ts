import { settingValue } from "@heddle/contracts/api/settings";
import { HARDENED } from "./cluster-version.ts";
import { type ControlCommand, type Refusal, refuse } from "./command.ts";
import { HashedMap, storedBytes } from "./hashed-map.ts";
import type { ControlState } from "./state.ts";

/**
 * Each kind's share of the setting `state_mib`. Answers and secrets have bounds of their own beside
 * it.
 */
const STATE_KINDS = {
  jobs: { maps: ["jobs", "specs", "tasks", "events"], share: 0.7 },
  catalog: {
    maps: ["keys", "models", "deployments", "removedModels", "settings", "joins"],
    share: 0.1,
  },
  cluster: { maps: ["nodes", "servers", "projects", "queues", "replicas"], share: 0.1 },
  documents: { maps: ["documents"], share: 0.1 },
} as const satisfies Record<
  string,
  { readonly maps: readonly (keyof ControlState)[]; readonly share: number }
>;

export type StateKind = keyof typeof STATE_KINDS;

/** The part of the jobs' share that submissions may fill; the rest is for tasks and events. */
const SUBMISSION_SHARE = 0.8;
/** The part of the jobs' share that events may fill before the oldest are dropped. */
const EVENT_SHARE = 0.1;
/** Reserved per job for its record and events, beside its spec. */
const JOB_RECORD_BYTES = 4_096;
/** Reserved per task of a start, for its record with its exit. */
const TASK_RECORD_BYTES = 1_024;

type MapName = (typeof STATE_KINDS)[StateKind]["maps"][number];

/** The maps of a state; absent ones take nothing. */
type Bounded = Readonly<Partial<Record<MapName, ReadonlyMap<string, unknown>>>> & {
  readonly settings: ReadonlyMap<string, { readonly value: number }>;
};

/** The use of each kind's limit, in bytes. */
export function stateUse(
  state: Bounded,
): Record<StateKind, { readonly bytes: number; readonly limit: number }> {
  const kinds = Object.keys(STATE_KINDS) as StateKind[];
  const use = (kind: StateKind) => ({ bytes: bytesOf(state, kind), limit: limitOf(state, kind) });
  return Object.fromEntries(kinds.map((kind) => [kind, use(kind)])) as ReturnType<typeof stateUse>;
}

/** Why a job with this spec does not fit. */
export function submissionRefusal(state: Bounded, spec: object): Refusal | undefined {
  const needed = storedBytes(JSON.stringify(spec)) + JOB_RECORD_BYTES;
  return refusalOf(state, "jobs", needed, SUBMISSION_SHARE);
}

/** Whether the records of this many new tasks fit. */
export function hasRoomForTasks(state: Bounded, tasks: number): boolean {
  return bytesOf(state, "jobs") + tasks * TASK_RECORD_BYTES <= limitOf(state, "jobs");
}

/** Whether the events exceed their share, so that the oldest must go. */
export function hasTooManyEvents(state: Bounded): boolean {
  return mapBytes(state.events) > EVENT_SHARE * limitOf(state, "jobs");
}

/** Why a command that adds a record does not fit. */
export function growthRefusal(state: ControlState, command: ControlCommand): Refusal | undefined {
  const kind = addsRecord(state, command) ? addedKind(command.type) : undefined;
  if (kind === undefined) return undefined;
  return refusalOf(state, kind, storedBytes(JSON.stringify(command)), 1);
}

/** The first version with a bound on the state's bytes. */
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
  "document.put": "documents",
};

/** The kind of the records that such commands add; undefined if they add none. */
export function addedKind(type: ControlCommand["type"]): StateKind | undefined {
  return ADDED_KINDS[type];
}

/** Whether the command adds a record or may enlarge one; submissions check jobs. */
function addsRecord(state: ControlState, command: ControlCommand): boolean {
  switch (command.type) {
    case "key.create":
    case "key.rotate":
    case "join.create":
    case "document.put":
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
  needed: number,
  share: number,
): Refusal | undefined {
  const [used, limit] = [bytesOf(state, kind), Math.floor(share * limitOf(state, kind))];
  if (used + needed <= limit) return undefined;
  const message = `the masters' state holds ${used} bytes of ${kind}, this needs ${needed} more, and the limit is ${limit}; remove what is not needed, or raise the cluster setting state_mib`;
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
