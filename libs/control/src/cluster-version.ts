import { ACCEPTED, type ControlReply, refuse } from "./command.ts";
import type { JobsState } from "./jobs/records/records.ts";
import type { ControlState } from "./state.ts";

/**
 * The version of the rules of apply, kept in the replicated state. A log entry raises it once every
 * master supports the next one. A changed rule keeps its old form for older versions, so that old
 * logs replay to the same state.
 */

/** The version of a state that was never raised. */
const FIRST_VERSION = 1;
/** Bounds on the state in bytes, and the other rules introduced with them. */
export const HARDENED = 2;
/** The masters agree on a key that encrypts their logs and snapshots. */
export const SEALED = 3;
/** The log and the records name plan entries by a tagged union instead of a string. */
export const PLAN_ENTRIES = 4;
/** Nodes limit the number of their tasks, and repeated losses without progress end a job. */
export const LIMITED_TASKS = 5;
/** The log, the records and their texts use the field's terms; see logged-command.ts. */
export const STANDARD_TERMS = 6;
/** The state has records of documents. */
export const STORES_DOCUMENTS = 6;
/** Records of jobs and tasks lose details rather than pass the bound on the state's bytes. */
export const BOUNDED_RECORDS = 6;
/** Limits of projects and models, budgets of keys, sums of usage. */
export const LIMITS_SUBJECTS = 7;
/** Roles, their bindings, the access policy; keys of a role. */
export const BINDS_ROLES = 8;
/** Events of every change, and records of calls that change nothing. */
export const RECORDS_EVENTS = 9;
/** A setting decides whether projects share cached prefixes. */
export const SALTS_CACHES = 9;
/** Secrets of projects, which jobs name. */
export const KEEPS_SECRETS = 10;
/** Personal data in events are encrypted under a key of their subject. */
export const SEALS_SUBJECTS = 10;
/** The oldest events are removed, as settings say. */
export const REMOVES_EVENTS = 10;
/** Sessions of the console are ended before their time. */
export const ENDS_SESSIONS = 10;
/** Sessions of the console are renewed by the identity provider. */
export const RENEWS_SESSIONS = 10;
/** The masters agree how far sinks of events are. */
export const COPIES_EVENTS = 10;
/** Jobs start with files, on conditions. */
export const TAKES_INPUTS = 10;
/** Quotas bound what a project stores; documents name their project. */
export const BOUNDS_STORAGE = 10;
/** Signatures of witnesses are kept. */
export const COSIGNS_EVENTS = 10;
/** Service accounts, to which keys belong and roles are bound. */
export const HAS_SERVICES = 10;
/** Events of models and removed webhooks name the project; those of service accounts' keys both. */
export const NAMES_OWNERS = 10;
/** Each project has ids of models of its own. */
export const SCOPES_MODELS = 10;
/** A setting lets jobs that no node can run wait for nodes. */
export const AWAITS_NODES = 10;
/** Events have the compliance levels and tags of calls. */
export const CLASSIFIES_CALLS = 10;
/** Certificates of nodes are revoked. */
export const REVOKES_NODES = 10;
/** Jobs run blocks of plugins. */
export const RUNS_BLOCKS = 10;
/** The leader says when the leases of a lost node have expired; no wall clock decides it. */
export const FENCES_BY_LEADER = 11;
/** Keys that have ended give way to new ones. */
export const FORGETS_KEYS = 11;
/** Workers divide models over GPUs, which their stages hold. */
export const PLACES_STAGES = 11;
/** One entry has the reports of many workers. */
export const GROUPS_REPORTS = 11;
/** The highest version that this build supports. */
export const NEWEST_VERSION = FORGETS_KEYS;

type Versioned = Pick<ControlState, "cluster">;

/** The cluster version of a state. */
export function versionOf({ cluster }: Pick<JobsState, "cluster">): number {
  return (cluster.get("version") as number | undefined) ?? FIRST_VERSION;
}

/** The id of the key that encrypts the log and the snapshots. */
export function secretsKeyOf({ cluster }: Versioned): string | undefined {
  return cluster.get("secretsKey") as string | undefined;
}

/** Encrypts the log and the snapshots with that key from the next entry on. */
export function useSecretsKey(state: Versioned, id: string): ControlReply {
  if (!/^[0-9a-f]{16}$/.test(id)) {
    return refuse("invalid_value", `a secrets key has an id of 16 hexadecimal digits, got ${id}`);
  }
  state.cluster.set("secretsKey", id);
  return ACCEPTED;
}

/** Raises the version of the state; repeating a raise succeeds and changes nothing. */
export function raiseVersion(state: Versioned, version: number): ControlReply {
  if (!(Number.isSafeInteger(version) && version >= FIRST_VERSION)) {
    return refuse("invalid_value", `a cluster version is a whole number from 1 on, got ${version}`);
  }
  if (version > versionOf(state)) state.cluster.set("version", version);
  return ACCEPTED;
}
