import { AppError } from "@heddle/base/errors";
import { UnsupportedVersionError } from "@heddle/base/unsupported-version";
import { changeAccess, isAccessCommand } from "./access/access-changes.ts";
import { changeService, isServiceCommand } from "./access/service-changes.ts";
import { changeSessions, isSessionCommand } from "./access/session-changes.ts";
import { apply, emptyState, MAX_KEYS, unknownRefusal } from "./apply.ts";
import { changeAudit, isAuditCommand } from "./audit/audit-changes.ts";
import {
  type DerivedEvent,
  derivedEvents,
  NO_EVENTS,
  raisedEvent,
} from "./audit/derived-events.ts";
import type { AuditContext } from "./audit/records.ts";
import { type NewSubject, sealsOf } from "./audit/subject-keys.ts";
import { changeWebhook, isWebhookCommand } from "./audit/webhook-changes.ts";
import {
  BINDS_ROLES,
  ENDS_SESSIONS,
  FENCES_BY_LEADER,
  FORGETS_KEYS,
  HAS_SERVICES,
  KEEPS_SECRETS,
  NEWEST_VERSION,
  RECORDS_EVENTS,
  raiseVersion,
  SCOPES_MODELS,
  SEALED,
  SEALS_SUBJECTS,
  STORES_DOCUMENTS,
  secretsKeyOf,
  useSecretsKey,
  versionOf,
} from "./cluster-version.ts";
import type { ControlCommand, ControlReply, LoggedCommand } from "./command.ts";
import type { DocumentIndex } from "./documents/document-index.ts";
import { DocumentsStateMachine, isDocumentsCommand } from "./documents/documents-state-machine.ts";
import { makeRoomForKey } from "./ended-keys.ts";
import { HashedMap, hashText } from "./hashed-map.ts";
import {
  type IdempotencyRecord,
  IdempotencyRecords,
  type IdempotentRequest,
} from "./idempotency.ts";
import { isJobsCommand, JobsStateMachine } from "./jobs/commands/jobs-state-machine.ts";
import type { JobIndex } from "./jobs/index/job-index.ts";
import { readCommand } from "./jobs/records/logged-command.ts";
import type { MapSnapshot } from "./map-snapshot.ts";
import { scopeModels } from "./model-names.ts";
import { ProjectStorage } from "./project-storage.ts";
import { changeSecret, isSecretCommand } from "./secrets/secret-changes.ts";
import { NO_SESSIONS_FROM, type SessionRequest, Sessions } from "./sessions.ts";
import type { ControlState } from "./state.ts";
import { BOUNDED_FROM, growthRefusal } from "./state-limits.ts";
import { messagesAt } from "./state-messages.ts";

/** A log entry: a command, or an entry of the group itself. */
export type LogCommand =
  | {
      readonly type: "control";
      readonly command: LoggedCommand;
      /** The session's request in versions before NO_SESSIONS_FROM. */
      readonly session?: SessionRequest | undefined;
      readonly idempotency?: IdempotentRequest | undefined;
      /** The call that asks for it; from RECORDS_EVENTS on. */
      readonly audit?: AuditContext | undefined;
      /** Keys of subjects that it is the first to name; from SEALS_SUBJECTS on. */
      readonly subjects?: readonly NewSubject[] | undefined;
    }
  /** The start of a session in versions before NO_SESSIONS_FROM. */
  | { readonly type: "session.open"; readonly atMs: number; readonly client: string }
  /** Stores a secret shared by all masters, unless the name exists. */
  | {
      readonly type: "secret.keep";
      readonly atMs: number;
      readonly name: string;
      readonly value: string;
    }
  /** The hash of a master's state after this many commands; see HashCheck. */
  | {
      readonly type: "hash.report";
      readonly atMs: number;
      readonly node: number;
      readonly commands: number;
      readonly hash: string;
    }
  /** Every master supports this cluster version; its rules apply from the next entry on. */
  | { readonly type: "version.raise"; readonly atMs: number; readonly version: number }
  /** Every master has this key; it encrypts the log and the snapshots from the next entry on. */
  | { readonly type: "secrets.key"; readonly atMs: number; readonly id: string };

type ControlEntry = Extract<LogCommand, { type: "control" }>;

/** The maps that are always hashed, as in snapshots of layout 1. */
const FIRST_MAPS: ReadonlySet<string> = new Set([
  "keys",
  "models",
  "deployments",
  "#sessions",
  "#secrets",
]);

interface SnapshotHead {
  readonly version: 1;
  readonly commands: number;
  readonly logTimeMs: number;
  /** The log index of the last entry in the snapshot. */
  readonly index?: number | undefined;
  readonly hash: string;
}

/** One line of a snapshot after the head: an entry of a map. */
type SnapshotLine = readonly [map: string, key: string, value: unknown];

/**
 * The whole replicated state as a function of the log: the control state, sessions, answers and
 * secrets. The log's time never decreases, whatever the proposers' clocks say.
 */
export class ReplicatedControl {
  readonly state: ControlState;
  /** The highest supported cluster version. */
  readonly newest: number;
  readonly #maps: ReadonlyMap<string, HashedMap<unknown>>;
  readonly #sessions = new Sessions();
  readonly #answers = new IdempotencyRecords();
  readonly #secrets = new HashedMap<string>();
  readonly #jobs: JobsStateMachine;
  readonly #documents: DocumentsStateMachine;
  readonly #maxBytes: number;
  #commands = 0;
  #logTimeMs = 0;
  #index = 0;
  #derived: readonly DerivedEvent[] = NO_EVENTS;
  /** Whether the last entry was an idempotent request that was applied before. */
  #isRepeated = false;

  /**
   * `newest`: the highest version to apply; upgrade tests pass an older one. `maxBytes`: bound on
   * the state's memory in this process. Beyond it, apply and restore throw `insufficient_memory`,
   * and the state must no longer be used.
   */
  constructor(newest: number = NEWEST_VERSION, maxBytes: number = Number.POSITIVE_INFINITY) {
    this.newest = newest;
    this.#maxBytes = maxBytes;
    const state: Record<string, HashedMap<unknown>> = {};
    for (const name of Object.keys(emptyState())) state[name] = new HashedMap();
    this.state = state as unknown as ControlState;
    const storage = new ProjectStorage();
    this.#jobs = new JobsStateMachine(this.state, storage);
    this.#documents = new DocumentsStateMachine(this.state, storage);
    this.#maps = new Map([
      ...Object.entries(state),
      ["#sessions", this.#sessions.map as HashedMap<unknown>],
      ["#secrets", this.#secrets as HashedMap<unknown>],
      ["#answers", this.#answers.map as HashedMap<unknown>],
    ]);
  }

  /** The log index of the last entry applied. */
  get index(): number {
    return this.#index;
  }

  /** Commands applied since the cluster was created. */
  get commands(): number {
    return this.#commands;
  }

  /** The time of the log. */
  get logTimeMs(): number {
    return this.#logTimeMs;
  }

  /** The events that followed from the last entry applied. */
  get derived(): readonly DerivedEvent[] {
    return this.#derived;
  }

  /** How many events followed from the log so far. */
  get eventCount(): number {
    return (this.state.cluster.get("events") as number | undefined) ?? 0;
  }

  /** Begins another log of events: those so far belong to an earlier incarnation of the cluster. */
  beginEvents(): void {
    this.state.cluster.delete("events");
    this.state.cluster.delete("firstEvent");
    for (const name of this.state.cluster.keys()) {
      if (name.startsWith("sink:")) this.state.cluster.delete(name);
    }
    this.state.cluster.delete("checkpoint");
    this.state.cluster.delete("cosigned");
  }

  /** The index derived from the jobs' state; read-only. */
  get jobs(): JobIndex {
    return this.#jobs.index;
  }

  /** The index derived from the documents; read-only. */
  get documents(): DocumentIndex {
    return this.#documents.index;
  }

  /** The cluster version whose rules apply to the next command. */
  get version(): number {
    return versionOf(this.state);
  }

  /** The id of the key that encrypts the log and the snapshots. */
  get secretsKey(): string | undefined {
    return secretsKeyOf(this.state);
  }

  secret(name: string): string | undefined {
    return this.#secrets.get(name);
  }

  /** The answer to an idempotent request; may lag behind the leader. */
  keptAnswer(id: string): IdempotencyRecord | undefined {
    return this.#answers.map.get(id);
  }

  /** A hash of the replicated state: sixteen hexadecimal digits, equal on all masters. */
  get hash(): string {
    return hashOf({ commands: this.#commands, logTimeMs: this.#logTimeMs }, this.#maps);
  }

  /**
   * Applies the entry at `index` of the log. Throws UnsupportedVersionError before any change if
   * the entry raises the version above what this build supports.
   */
  apply(entry: LogCommand, index: number): ControlReply {
    const reply = this.#apply(entry, index);
    this.#derive(entry, index, reply);
    checkBytes(this.#maps, this.#maxBytes);
    return reply;
  }

  #derive(entry: LogCommand, index: number, reply: ControlReply): void {
    this.#derived = this.version < RECORDS_EVENTS ? NO_EVENTS : this.#eventsOf(entry, index, reply);
    if (this.#derived.length === 0) return;
    this.state.cluster.set("events", this.eventCount + this.#derived.length);
  }

  #eventsOf(entry: LogCommand, index: number, reply: ControlReply): readonly DerivedEvent[] {
    if (entry.type === "version.raise") return reply.ok ? [raisedEvent(entry.version)] : NO_EVENTS;
    if (entry.type !== "control") return NO_EVENTS;
    const events = derivedEvents({
      command: readCommand(entry.command),
      reply,
      audit: entry.audit,
      isRepeated: this.#isRepeated,
      index,
      state: this.state,
      jobEvents: this.#jobs.index.events,
    });
    if (this.version < SEALS_SUBJECTS) return events;
    return events.map((event) => {
      return { ...event, seals: sealsOf(this.state, event, entry.subjects ?? []) };
    });
  }

  #apply(entry: LogCommand, index: number): ControlReply {
    if (entry.type === "version.raise" && entry.version > this.newest) {
      const what = `the log from entry ${index} on`;
      throw new UnsupportedVersionError(what, entry.version, this.newest);
    }
    this.#commands++;
    this.#index = index;
    const atMs = entry.type === "control" ? entry.command.atMs : entry.atMs;
    this.#logTimeMs = Math.max(this.#logTimeMs, atMs);
    switch (entry.type) {
      case "control":
        return this.#applyControl(entry, index);
      case "session.open":
        if (this.version >= NO_SESSIONS_FROM) return this.#unknown(entry.type);
        return this.#sessions.open(entry.client, this.#logTimeMs);
      case "secret.keep":
        return this.#keepSecret(entry.name, entry.value);
      case "hash.report":
        return { ok: true };
      case "version.raise":
        return this.#raiseVersion(entry.version);
      case "secrets.key":
        if (this.version < SEALED) return this.#unknown(entry.type);
        return useSecretsKey(this.state, entry.id);
      default:
        return this.#unknown((entry as LogCommand).type);
    }
  }

  #raiseVersion(version: number): ControlReply {
    const isScoped = this.version >= SCOPES_MODELS;
    const reply = raiseVersion(this.state, version);
    if (!isScoped && this.version >= SCOPES_MODELS) scopeModels(this.state);
    return reply;
  }

  #unknown(type: string): ControlReply {
    return unknownRefusal(`the log entry ${JSON.stringify(type)}`, this.state);
  }

  #applyControl({ command, session, idempotency }: ControlEntry, index: number): ControlReply {
    this.#isRepeated = true;
    const change = () => {
      this.#isRepeated = false;
      return this.#change(command, index);
    };
    const { version } = this;
    if (session && version >= NO_SESSIONS_FROM) return this.#unknown("control.session");
    if (session) return this.#sessions.once(session, this.#logTimeMs, change);
    if (idempotency) return this.#answers.once(idempotency, this.#logTimeMs, change, version);
    return change();
  }

  #change(logged: LoggedCommand, index: number): ControlReply {
    const command = readCommand(logged);
    const { version } = this;
    if ((command.type === "key.create" || command.type === "key.rotate") && version >= FORGETS_KEYS)
      makeRoomForKey(this.state, command.atMs, () => isFullFor(this.state, command));
    const refusal = version >= BOUNDED_FROM ? growthRefusal(this.state, command) : undefined;
    if (refusal) return refusal;
    const now = { index, atMs: this.#logTimeMs, version };
    const since = (first: number, change: () => ControlReply) =>
      version < first ? this.#unknown(command.type) : change();
    if (isJobsCommand(command)) {
      const first = command.type === "node.fenced" ? FENCES_BY_LEADER : 0;
      return since(first, () => this.#jobs.apply(command, now));
    }
    if (isAccessCommand(command)) {
      return since(BINDS_ROLES, () => changeAccess(this.state, command));
    }
    if (isServiceCommand(command)) {
      return since(HAS_SERVICES, () => changeService(this.state, command));
    }
    if (isAuditCommand(command)) {
      return since(RECORDS_EVENTS, () => changeAudit(this.state, command));
    }
    if (isWebhookCommand(command)) {
      return since(RECORDS_EVENTS, () => changeWebhook(this.state, command));
    }
    if (isSessionCommand(command)) {
      return since(ENDS_SESSIONS, () => changeSessions(this.state, command));
    }
    if (isSecretCommand(command)) {
      return since(KEEPS_SECRETS, () => changeSecret(this.state, command));
    }
    if (!isDocumentsCommand(command)) return apply(this.state, command);
    return since(STORES_DOCUMENTS, () => this.#documents.apply(command, now));
  }

  #keepSecret(name: string, value: string): ControlReply {
    if (this.#secrets.has(name)) {
      const message = messagesAt(this.version).existingSecret(name);
      return { ok: false, code: "conflict", message };
    }
    this.#secrets.set(name, value);
    return { ok: true };
  }

  /**
   * The present state as lazy lines of JSON, to be read once. Old values are kept until the
   * iterator reaches its end or is closed by `return`.
   */
  snapshot(): IterableIterator<string> {
    const head: SnapshotHead = {
      version: 1,
      commands: this.#commands,
      logTimeMs: this.#logTimeMs,
      index: this.#index,
      hash: this.hash,
    };
    return new StateSnapshot(head, this.#maps);
  }

  /**
   * Replaces the state by a snapshot, atomically once all lines have arrived: readers see the old
   * state meanwhile. Throws on an invalid snapshot, and the state stays.
   */
  async restore(lines: AsyncIterable<string> | Iterable<string>): Promise<void> {
    const fresh = new Map([...this.#maps.keys()].map((name) => [name, new HashedMap<unknown>()]));
    let head: SnapshotHead | undefined;
    for await (const line of lines) {
      if (head) putLine(fresh, JSON.parse(line) as SnapshotLine, this.newest);
      else head = checkedHead(JSON.parse(line) as SnapshotHead);
      checkBytes(fresh, this.#maxBytes);
    }
    const hash = head && hashOf(head, fresh);
    if (!head || head.hash !== hash) {
      throw new Error(`the snapshot's state has the hash ${hash}, not ${head?.hash}`);
    }
    for (const [name, map] of fresh) this.#maps.get(name)?.replaceWith(map);
    this.#commands = head.commands;
    this.#logTimeMs = head.logTimeMs;
    this.#index = head.index ?? 0;
    this.#jobs.rebuild();
    this.#documents.rebuild();
  }
}

type Maps = ReadonlyMap<string, HashedMap<unknown>>;

function checkBytes(maps: Maps, most: number): void {
  let bytes = 0;
  for (const map of maps.values()) bytes += map.bytes;
  if (bytes <= most) return;
  const [has, room] = [bytes, most].map((each) => `${Math.floor(each / 2 ** 20)} MiB`);
  const message = `the masters' state takes ${has} or more, and this master has memory for ${room} of it`;
  throw new AppError("insufficient_memory", message);
}

/**
 * A map of a later version is hashed only if it has entries, so that snapshots of earlier versions
 * keep their hash.
 */
function hashOf(
  { commands, logTimeMs }: Pick<SnapshotHead, "commands" | "logTimeMs">,
  maps: Maps,
): string {
  let text = `${commands}\n${logTimeMs}`;
  for (const [name, map] of maps) {
    if (map.size > 0 || FIRST_MAPS.has(name)) text += `\n${name}:${map.hash}`;
  }
  const lane = (seed: number) => hashText(text, seed).toString(16).padStart(8, "0");
  return lane(1) + lane(2);
}

function checkedHead(head: SnapshotHead): SnapshotHead {
  if (head.version === 1) return head;
  throw new Error(`a snapshot of layout ${head.version} needs a newer master`);
}

function putLine(maps: Maps, [name, key, value]: SnapshotLine, newest: number): void {
  const map = maps.get(name);
  if (!map) throw new Error(`a snapshot with the map ${name} needs a newer master`);
  if (name === "cluster" && key === "version" && !((value as number) <= newest)) {
    throw new UnsupportedVersionError("the snapshot", value as number, newest);
  }
  map.set(key, value);
}

/**
 * The lines of a snapshot. Not a generator, because one that was never started runs no `finally`.
 */
class StateSnapshot implements IterableIterator<string> {
  readonly #lines: Iterator<string>;
  readonly #open: { name: string; map: HashedMap<unknown>; entries: MapSnapshot<unknown> }[];

  constructor(head: SnapshotHead, maps: ReadonlyMap<string, HashedMap<unknown>>) {
    this.#open = [...maps].map(([name, map]) => ({ name, map, entries: map.freeze() }));
    this.#lines = this.#read(head);
  }

  [Symbol.iterator](): this {
    return this;
  }

  next(): IteratorResult<string> {
    return this.#lines.next();
  }

  return(): IteratorResult<string> {
    for (const { map, entries } of this.#open) map.end(entries);
    this.#open.length = 0;
    this.#lines.return?.();
    return { done: true, value: undefined };
  }

  *#read(head: SnapshotHead): Generator<string, void> {
    yield JSON.stringify(head);
    for (let first = this.#open[0]; first; first = this.#open[0]) {
      for (const [key, value] of first.entries.entries()) {
        yield JSON.stringify([first.name, key, value] satisfies SnapshotLine);
      }
      first.map.end(first.entries);
      this.#open.shift();
    }
  }
}

function isFullFor(state: ControlState, command: ControlCommand): boolean {
  return state.keys.size >= MAX_KEYS || growthRefusal(state, command) !== undefined;
}
