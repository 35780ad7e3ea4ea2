import type { Message } from "../core/message.ts";
import type { HardState } from "../core/state.ts";
import type { Entry } from "../log/entry.ts";
import type { Storage } from "../log/storage.ts";

/** The state of a simulated node that the checker reads. */
export interface CheckedNode {
  readonly id: number;
  /** The terms of its log by index, durable or not; compacted ones may be missing. */
  readonly logTerms: ReadonlyMap<number, number>;
  readonly storage: Storage & { initialState(): { hardState: HardState } };
}

/** Thrown where a run violates a safety property of Raft. */
export class SafetyViolation extends Error {
  override readonly name = "SafetyViolation";
}

function demand(condition: boolean, describe: () => string): asserts condition {
  if (!condition) throw new SafetyViolation(describe());
}

/** Checks all nodes of a simulation, across their restarts, for the safety properties of Raft. */
export class SafetyChecker {
  readonly #leaders = new Map<number, number>();
  readonly #votes = new Map<string, number>();
  /** Every entry that was ever in a log, by index and term, with the term before it. */
  readonly #entries = new Map<string, string>();
  /** The term of each committed entry. */
  readonly #committed = new Map<number, number>();
  /** The state after each applied entry. */
  readonly #states = new Map<number, number>();
  #maxCommitted = 0;
  #maxApplied = 0;

  /** The highest index that any node has applied, which a client may know. */
  get maxApplied(): number {
    return this.#maxApplied;
  }

  /** Election Safety and Leader Completeness. */
  leaderElected(node: CheckedNode, term: number): void {
    const other = this.#leaders.get(term) ?? node.id;
    demand(other === node.id, () => `term ${term} has two leaders, ${other} and ${node.id}`);
    this.#leaders.set(term, node.id);
    const first = node.storage.firstIndex();
    for (let index = this.#maxCommitted; index >= first; index--) {
      const committed = this.#committed.get(index);
      if (committed === undefined) continue;
      demand(
        node.logTerms.get(index) === committed,
        () => `leader ${node.id} of term ${term} lacks committed entry ${index}`,
      );
    }
  }

  /** One vote a term, also across restarts. */
  hardState(node: CheckedNode, { term, vote }: HardState): void {
    if (vote === 0) return;
    const key = `${node.id}/${term}`;
    const before = this.#votes.get(key) ?? vote;
    demand(before === vote, () => `${node.id} votes for ${before} and ${vote} in term ${term}`);
    this.#votes.set(key, vote);
  }

  /** Log Matching: an index and a term determine an entry and the term before it. */
  appended(node: CheckedNode, entries: readonly Entry[]): void {
    for (const { index, term, type, data } of entries) {
      const before = node.logTerms.get(index - 1);
      if (before === undefined) continue;
      const key = `${index}/${term}`;
      const content = `after ${before}: ${type} ${data.join(",")}`;
      const known = this.#entries.get(key) ?? content;
      demand(known === content, () => `entry ${key} of ${node.id} is ${content}, not ${known}`);
      this.#entries.set(key, content);
    }
  }

  /** Committed entries never change, and are the same on all nodes. */
  committed(node: CheckedNode, from: number, to: number): void {
    demand(from <= to, () => `the commit index of ${node.id} goes back from ${from} to ${to}`);
    for (let index = from + 1; index <= to; index++) {
      const term = node.logTerms.get(index);
      if (term === undefined) continue;
      const known = this.#committed.get(index) ?? term;
      demand(
        known === term,
        () => `${node.id} commits ${term}/${index}, but ${known}/${index} is committed`,
      );
      this.#committed.set(index, term);
    }
    this.#maxCommitted = Math.max(this.#maxCommitted, to);
  }

  /** State Machine Safety: the state after an index is the same on all nodes. */
  applied(node: CheckedNode, index: number, state: number): void {
    const known = this.#states.get(index) ?? state;
    demand(known === state, () => `${node.id} has another state than others at ${index}`);
    this.#states.set(index, state);
    this.#maxApplied = Math.max(this.#maxApplied, index);
  }

  /** The state that a message acknowledges must be durable before the message leaves. */
  sent(node: CheckedNode, message: Message): void {
    if (message.reject || message.from !== node.id) return;
    const { hardState } = node.storage.initialState();
    if (message.type === "MsgVoteResp") {
      const { term, to } = message;
      demand(
        hardState.term > term || (hardState.term === term && hardState.vote === to),
        () => `${node.id} sends a vote for ${to} in term ${term} that is not durable`,
      );
    }
    if (message.type === "MsgAppResp") {
      // In a later term the entry may rightly be replaced, and the promise ends.
      const { term, index } = message;
      demand(
        hardState.term > term || (hardState.term === term && node.storage.lastIndex() >= index),
        () => `${node.id} acknowledges entry ${message.index} before it is durable`,
      );
    }
  }

  /** Linearizable reads: a read sees every entry applied on any node before the request. */
  read(node: CheckedNode, index: number, appliedBefore: number): void {
    demand(
      index >= appliedBefore,
      () => `a read on ${node.id} sees ${index}, but ${appliedBefore} was applied before`,
    );
  }
}
