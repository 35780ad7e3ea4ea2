import { AppError } from "@heddle/base/errors";
import { UnsupportedVersionError } from "@heddle/base/unsupported-version";
import { apply, emptyState, unknownRefusal } from "./apply.ts";
import {
  NEWEST_VERSION,
  raiseVersion,
  SEALED,
  secretsKeyOf,
  useSecretsKey,
  versionOf,
} from "./cluster-version.ts";
import type { ControlCommand, ControlReply } from "./command.ts";
import { HashedMap, hashText } from "./hashed-map.ts";
import { type IdempotentRequest, type KeptAnswer, KeptAnswers } from "./idempotency.ts";
import { isJobsCommand, JobsStateMachine } from "./jobs/commands/jobs-state-machine.ts";
import type { JobIndex } from "./jobs/index/job-index.ts";
import type { MapSnapshot } from "./map-snapshot.ts";
import { type SessionRequest, Sessions } from "./sessions.ts";
import type { ControlState } from "./state.ts";
import { BOUNDED_FROM, growthRefusal } from "./state-limits.ts";

/** What stands in an entry of the log: a change, or what the group needs for itself. */
export type LogCommand =
  | {
      readonly type: "control";
      readonly command: ControlCommand;
      readonly session?: SessionRequest | undefined;
      readonly idempotency?: IdempotentRequest | undefined;
    }
  | { readonly type: "session.open"; readonly atMs: number; readonly client: string }
  /** Keeps a secret that all masters share, unless there is one of that name. */
  | {
      readonly type: "secret.keep";
      readonly atMs: number;
      readonly name: string;
      readonly value: string;
    }
  /** What a master's state hash was after so many commands; see HashCheck. */
  | {
      readonly type: "hash.report";
      readonly atMs: number;
      readonly node: number;
      readonly commands: number;
      readonly hash: string;
    }
  /** Every master supports this cluster version: from the next entry on, its rules hold. */
  | { readonly type: "version.raise"; readonly atMs: number; readonly version: number }
  /** Every master holds this key: from the next entry on, it encrypts the log and the snapshots. */
  | { readonly type: "secrets.key"; readonly atMs: number; readonly id: string };

type ControlEntry = Extract<LogCommand, { type: "control" }>;

/** Those that a snapshot of layout 1 always counted. */
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
  /** The log index of the last entry in it. */
  readonly index?: number | undefined;
  readonly hash: string;
}

/** One line of a snapshot after the head: an entry of a map. */
type SnapshotLine = readonly [map: string, key: string, value: unknown];

/**
 * Everything that the masters replicate: the control state and what surrounds it, as a function of
 * the log. The time is that of the log, which never goes back whatever the proposers' clocks say.
 */
export class ReplicatedControl {
  readonly state: ControlState;
  /** The highest cluster version that is supported. */
  readonly newest: number;
  readonly #maps: ReadonlyMap<string, HashedMap<unknown>>;
  readonly #sessions = new Sessions();
  readonly #answers = new KeptAnswers();
  readonly #secrets = new HashedMap<string>();
  readonly #jobs: JobsStateMachine;
  readonly #maxBytes: number;
  #commands = 0;
  #logTimeMs = 0;
  #index = 0;

  /**
   * `newest`: the highest version to apply; tests of upgrades give an older one than this build's.
   * `maxBytes`: what the state may take of this process's memory; beyond it, apply and restore throw
   * `insufficient_memory`, and the state must not be used any more.
   */
  constructor(newest: number = NEWEST_VERSION, maxBytes: number = Number.POSITIVE_INFINITY) {
    this.newest = newest;
    this.#maxBytes = maxBytes;
    const state: Record<string, HashedMap<unknown>> = {};
    for (const name of Object.keys(emptyState())) state[name] = new HashedMap();
    this.state = state as unknown as ControlState;
    this.#jobs = new JobsStateMachine(this.state);
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

  /** How many commands were applied since the cluster began. */
  get commands(): number {
    return this.#commands;
  }

  /** What follows from the jobs of the state; for reading only. */
  get jobs(): JobIndex {
    return this.#jobs.index;
  }

  /** The cluster version by whose rules the next command is applied. */
  get version(): number {
    return versionOf(this.state);
  }

  /** The id of the key that encrypts what is written from now on. */
  get secretsKey(): string | undefined {
    return secretsKeyOf(this.state);
  }

  secret(name: string): string | undefined {
    return this.#secrets.get(name);
  }

  /** What is remembered of an idempotent request; may lag behind the leader's. */
  keptAnswer(id: string): KeptAnswer | undefined {
    return this.#answers.map.get(id);
  }

  /** A hash of all that is replicated: sixteen hexadecimal digits, equal on equal masters. */
  get hash(): string {
    return hashOf({ commands: this.#commands, logTimeMs: this.#logTimeMs }, this.#maps);
  }

  /**
   * Applies the entry that stands at `index` of the log. Throws UnsupportedVersionError, before it has
   * changed anything, where the entry raises the version above what this build supports.
   */
  apply(entry: LogCommand, index: number): ControlReply {
    const reply = this.#apply(entry, index);
    checkBytes(this.#maps, this.#maxBytes);
    return reply;
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
        return this.#sessions.open(entry.client, this.#logTimeMs);
      case "secret.keep":
        return this.#keepSecret(entry.name, entry.value);
      case "hash.report":
        return { ok: true };
      case "version.raise":
        return raiseVersion(this.state, entry.version);
      case "secrets.key":
        if (this.version < SEALED) return this.#unknown(entry);
        return useSecretsKey(this.state, entry.id);
      default:
        return this.#unknown(entry);
    }
  }

  #unknown({ type }: LogCommand): ControlReply {
    return unknownRefusal(`the log entry ${JSON.stringify(type)}`, this.state);
  }

  #applyControl({ command, session, idempotency }: ControlEntry, index: number): ControlReply {
    const change = () => this.#change(command, index);
    if (session) return this.#sessions.once(session, this.#logTimeMs, change);
    const { version } = this;
    if (idempotency) return this.#answers.once(idempotency, this.#logTimeMs, change, version);
    return change();
  }

  #change(command: ControlCommand, index: number): ControlReply {
    const { version } = this;
    const refusal = version >= BOUNDED_FROM ? growthRefusal(this.state, command) : undefined;
    if (refusal) return refusal;
    if (!isJobsCommand(command)) return apply(this.state, command);
    return this.#jobs.apply(command, { index, atMs: this.#logTimeMs, version });
  }

  #keepSecret(name: string, value: string): ControlReply {
    if (this.#secrets.has(name)) {
      return { ok: false, code: "conflict", message: `the secret ${name} is kept already` };
    }
    this.#secrets.set(name, value);
    return { ok: true };
  }

  /**
   * The state as of this call as lines of JSON, which are made as they are asked for. To be read once,
   * and to its end or to a `return`: until then what it needs of the old state is kept.
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
   * Replaces the state by that of a snapshot, at once when all of it has come: whoever reads meanwhile
   * sees the state before. Throws where the lines are not a snapshot, and the state stays.
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
    for (const [name, map] of fresh) this.#maps.get(name)?.become(map);
    this.#commands = head.commands;
    this.#logTimeMs = head.logTimeMs;
    this.#index = head.index ?? 0;
    this.#jobs.rebuild();
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
 * A map that came with a later version counts from its first entry on, so that the snapshots of
 * earlier versions still have the hash that they were given.
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

/** The lines of a snapshot; an object of its own since a generator that was not begun runs no `finally`. */
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
