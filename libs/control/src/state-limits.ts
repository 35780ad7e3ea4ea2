import { settingValue } from "@heddle/contracts/api/settings";
import { subjectId } from "@heddle/contracts/limits";
import { BOUNDED_RECORDS, HARDENED, versionOf } from "./cluster-version.ts";
import { type ControlCommand, type Refusal, refuse } from "./command.ts";
import { HashedMap, storedBytes } from "./hashed-map.ts";
import { modelKey } from "./model-names.ts";
import { secretKey } from "./secrets/records.ts";
import type { ControlState } from "./state.ts";

/**
 * Each kind's share of the setting `state_mib`. Answers and secrets have bounds of their own beside
 * it.
 */
const STATE_KINDS = {
  jobs: { maps: ["jobs", "specs", "tasks", "events"], share: 0.7 },
  catalog: {
    maps: [
      "keys",
      "models",
      "deployments",
      "removedModels",
      "settings",
      "limits",
      "joins",
      "roles",
      "bindings",
      "access",
      "services",
      "secrets",
      "endedSessions",
      "sessionTokens",
    ],
    share: 0.1,
  },
  cluster: {
    maps: ["nodes", "servers", "projects", "queues", "replicas", "stageClaims"],
    share: 0.1,
  },
  documents: { maps: ["documents"], share: 0.1 },
} as const satisfies Record<
  string,
  { readonly maps: readonly (keyof ControlState)[]; readonly share: number }
>;

export type StateKind = keyof typeof STATE_KINDS;

/** The part of the jobs' share that submissions may fill; the rest is for tasks and events. */
const SUBMISSION_SHARE = 0.8;
/** The same from BOUNDED_RECORDS on, where events do not count, but what live tasks may still add. */
const RESERVED_SUBMISSION_SHARE = 0.7;
/** The part that starts, and artifacts of ended tasks, may fill; the rest is for waiting jobs. */
const START_SHARE = 0.8;
/** The part up to which tasks' last lines and other details are kept. */
const DETAIL_SHARE = 0.6;
/** The part of the jobs' share that events may fill before the oldest are dropped. */
const EVENT_SHARE = 0.1;
/** Reserved per job for its record and events, beside its spec. */
const JOB_RECORD_BYTES = 4_096;
/** Reserved per task of a start, for its record with its exit. */
const TASK_RECORD_BYTES = 1_024;
/** By how much the record of a live task may grow without details. */
const TASK_GROWTH_BYTES = 2_048;
/** The same of a job that has live tasks. */
const JOB_GROWTH_BYTES = 8_192;
/** The name of one shard's parameter server in a job's record. */
const SHARD_BYTES = 128;
/** More than one record can have; see MAX_ARTIFACTS and MAX_LINES_BYTES of the master's reports. */
const MAX_RECORD_BYTES = 512 * 1_024;

type MapName = (typeof STATE_KINDS)[StateKind]["maps"][number];

/** The maps of a state; absent ones take nothing. */
type Bounded = Readonly<Partial<Record<MapName, ReadonlyMap<string, unknown>>>> & {
  readonly settings: ReadonlyMap<string, { readonly value: number }>;
};

/** The jobs' part of a state, as a transaction has it. */
interface JobsPart {
  readonly state: Bounded;
  readonly index: LiveRecords;
  readonly version: number;
}

/** The use of each kind's limit, in bytes. */
export function stateUse(
  state: Bounded,
): Record<StateKind, { readonly bytes: number; readonly limit: number }> {
  const kinds = Object.keys(STATE_KINDS) as StateKind[];
  const use = (kind: StateKind) => ({ bytes: bytesOf(state, kind), limit: limitOf(state, kind) });
  return Object.fromEntries(kinds.map((kind) => [kind, use(kind)])) as ReturnType<typeof stateUse>;
}

/** What may still grow: tasks that have not exited, and jobs that have such tasks. */
interface LiveRecords {
  readonly liveTasks: number;
  readonly placedJobs: number;
}

/** Why a job with this spec does not fit. */
export function submissionRefusal(
  { state, index, version }: JobsPart,
  spec: object,
): Refusal | undefined {
  const needed = storedBytes(JSON.stringify(spec)) + JOB_RECORD_BYTES;
  if (version < BOUNDED_RECORDS) return refusalOf(state, "jobs", needed, SUBMISSION_SHARE);
  const limit = Math.floor(RESERVED_SUBMISSION_SHARE * limitOf(state, "jobs"));
  return refusalAbove(limit, "jobs", reservedBytes(state, index), needed);
}

/** Whether the records of this many new tasks of one job fit. */
export function hasRoomForTasks(
  { state, index, version }: JobsPart,
  tasks: number,
  shards: number,
): boolean {
  const records = tasks * TASK_RECORD_BYTES;
  if (version < BOUNDED_RECORDS) {
    return bytesOf(state, "jobs") + records <= limitOf(state, "jobs");
  }
  const growth = tasks * TASK_GROWTH_BYTES + JOB_GROWTH_BYTES + shards * SHARD_BYTES;
  const limit = START_SHARE * limitOf(state, "jobs");
  return reservedBytes(state, index) + records + growth <= limit;
}

/**
 * What is kept of a record that changes: all, all but details such as the last lines, or only what
 * its reserved bytes hold.
 */
export function keptParts({ state, index }: JobsPart): "all" | "artifacts" | "least" {
  const used = reservedBytes(state, index) + MAX_RECORD_BYTES;
  const limit = limitOf(state, "jobs");
  if (used <= DETAIL_SHARE * limit) return "all";
  return used <= START_SHARE * limit ? "artifacts" : "least";
}

/** What jobs take without events, which have a share of their own, and with what is reserved. */
function reservedBytes(state: Bounded, { liveTasks, placedJobs }: LiveRecords): number {
  const growth = liveTasks * TASK_GROWTH_BYTES + placedJobs * JOB_GROWTH_BYTES;
  return bytesOf(state, "jobs") - mapBytes(state.events) + growth;
}

/** Whether the events exceed their share, so that the oldest must go. */
export function hasTooManyEvents(state: Bounded): boolean {
  return mapBytes(state.events) > EVENT_SHARE * limitOf(state, "jobs");
}

/** Why a command that adds a record does not fit. */
export function growthRefusal(state: ControlState, command: ControlCommand): Refusal | undefined {
  const kind = addedKind(command.type);
  if (kind === undefined) return undefined;
  const needed = storedBytes(JSON.stringify(command));
  if (addsRecord(state, command)) return refusalOf(state, kind, needed, 1);
  if (versionOf(state) < BOUNDED_RECORDS) return undefined;
  const replaced = replacedRecord(state, command);
  if (replaced === undefined) return undefined;
  const growth = needed - storedBytes(JSON.stringify(replaced));
  return growth > 0 ? refusalOf(state, kind, growth, 1) : undefined;
}

/** The record that the command replaces, with what it has beside the command's. */
function replacedRecord(state: ControlState, command: ControlCommand): object | undefined {
  switch (command.type) {
    case "model.register":
      return state.models.get(modelKey(state, command.model.id, command.model.project));
    case "node.join":
      return state.nodes.get(command.offer.id);
    case "server.join":
      return state.servers.get(command.server.id);
    case "role.set":
      return state.roles.get(command.name);
    case "service.set":
      return state.services.get(command.name);
    case "secret.set":
    case "secret.reseal":
      return state.secrets.get(secretKey(command));
    case "project.set":
      return state.projects.get(command.name);
    case "queue.set":
      return state.queues.get(command.queue.name);
    default:
      return undefined;
  }
}

/** The first version with a bound on the state's bytes. */
export const BOUNDED_FROM = HARDENED;

const ADDED_KINDS: Partial<Record<ControlCommand["type"], StateKind>> = {
  "job.submit": "jobs",
  "key.create": "catalog",
  "key.rotate": "catalog",
  "join.create": "catalog",
  "limits.set": "catalog",
  "role.set": "catalog",
  "secret.set": "catalog",
  "service.set": "catalog",
  "binding.add": "catalog",
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
    case "binding.add":
    case "document.put":
      return true;
    case "role.set":
      return !state.roles.has(command.name);
    case "service.set":
      return !state.services.has(command.name);
    case "secret.set":
      return !state.secrets.has(secretKey(command));
    case "limits.set":
      return !state.limits.has(subjectId(command));
    case "model.register":
      return !state.models.has(modelKey(state, command.model.id, command.model.project));
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
  const limit = Math.floor(share * limitOf(state, kind));
  return refusalAbove(limit, kind, bytesOf(state, kind), needed);
}

function refusalAbove(
  limit: number,
  kind: StateKind,
  used: number,
  needed: number,
): Refusal | undefined {
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
