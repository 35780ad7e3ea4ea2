import type { Message } from "@heddle/raft/core/message";
import type { Ready } from "@heddle/raft/core/ready";
import type { RawNode } from "@heddle/raft/raw-node";

/** Reads and heartbeats that are kept of one core; the oldest are dropped first. */
const MAX_REMEMBERED = 4_096;

/** The reads and heartbeats of one core, in the order of the events. */
class WatchedCore {
  term = 0;
  #now = 0;
  /** When each unanswered read arrived, and arrived again: each arrival is answered, in order. */
  readonly #reads = new Map<string, number[]>();
  /** When each context of a heartbeat was first sent. */
  readonly #sent = new Map<string, number>();
  /** The latest first sending of a context that each member has answered. */
  readonly #answered = new Map<number, number>();

  enter(term: number): void {
    if (term === this.term) return;
    this.term = term;
    for (const known of [this.#reads, this.#sent, this.#answered]) known.clear();
  }

  read(read: string): void {
    const arrivals = this.#reads.get(read);
    if (arrivals) arrivals.push(++this.#now);
    else keep(this.#reads, read, [++this.#now]);
  }

  send(context: string): void {
    if (!this.#sent.has(context)) keep(this.#sent, context, ++this.#now);
  }

  confirm(from: number, context: string): void {
    const at = this.#sent.get(context) ?? 0;
    this.#answered.set(from, Math.max(this.#answered.get(from) ?? 0, at));
  }

  /**
   * The members that have answered a heartbeat sent after the read arrived; undefined: unknown
   * read.
   */
  confirmers(read: string): ReadonlySet<number> | undefined {
    const arrivals = this.#reads.get(read);
    const at = arrivals?.shift();
    if (at === undefined) return undefined;
    if (arrivals?.length === 0) this.#reads.delete(read);
    return new Set([...this.#answered].filter(([, answered]) => answered > at).map(([id]) => id));
  }
}

/**
 * Checks that a leader answers a read only when a quorum has answered heartbeats sent after the
 * read arrived. It does not need a client that sees a stale value.
 */
export class ReadChecker {
  readonly #cores = new WeakMap<RawNode, WatchedCore>();
  readonly #onViolation: (detail: string) => void;

  constructor(onViolation: (detail: string) => void) {
    this.#onViolation = onViolation;
  }

  /** The core's own replica requests a read. */
  asked(raw: RawNode, context: Uint8Array): void {
    this.#of(raw).read(readOf(raw.status().id, context));
  }

  /** The core processes a message. */
  received(raw: RawNode, { type, from, term, context, entries }: Message): void {
    const core = this.#of(raw);
    const [entry] = entries;
    if (type === "MsgReadIndex" && entry) core.read(readOf(from, entry.data));
    if (type === "MsgHeartbeatResp" && term === core.term) core.confirm(from, textOf(context));
  }

  /** The core returns a batch. */
  ready(raw: RawNode, { messages, readStates }: Ready): void {
    const core = this.#of(raw);
    for (const { type, context } of messages) {
      if (type === "MsgHeartbeat" && context.length > 0) core.send(textOf(context));
    }
    for (const { type, to, entries } of messages) {
      const [entry] = entries;
      if (type === "MsgReadIndexResp" && entry) this.#check(raw, core, readOf(to, entry.data));
    }
    if (raw.basicStatus.role !== "leader") return;
    for (const { context } of readStates) {
      this.#check(raw, core, readOf(raw.status().id, context));
    }
  }

  #check(raw: RawNode, core: WatchedCore, read: string): void {
    const confirmers = core.confirmers(read);
    if (!confirmers) return;
    const { id, config } = raw.status();
    const { incoming, outgoing } = config.voters;
    const isQuorum = (voters: ReadonlySet<number>) => {
      const count = [...voters].filter((voter) => voter === id || confirmers.has(voter)).length;
      return voters.size === 0 || count > voters.size / 2;
    };
    if (isQuorum(incoming) && isQuorum(outgoing)) return;
    const who = [...confirmers].join(", ") || "no member";
    this.#onViolation(`member ${id} answers a read of term ${core.term} confirmed by ${who}`);
  }

  #of(raw: RawNode): WatchedCore {
    let core = this.#cores.get(raw);
    if (!core) {
      core = new WatchedCore();
      this.#cores.set(raw, core);
    }
    core.enter(raw.basicStatus.term);
    return core;
  }
}

function keep<T>(map: Map<string, T>, key: string, value: T): void {
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > MAX_REMEMBERED && oldest !== undefined) map.delete(oldest);
}

/** The key of a read: its context is unique only for the requesting member. */
function readOf(member: number, context: Uint8Array): string {
  return `${member}:${textOf(context)}`;
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex");
}
