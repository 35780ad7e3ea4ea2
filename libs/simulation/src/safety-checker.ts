import type { Message } from "@heddle/raft/core/message";
import type { Ready } from "@heddle/raft/core/ready";
import type { EntryId } from "@heddle/raft/log/entry";
import type { RawNode } from "@heddle/raft/raw-node";
import { DurableShadow, type ShadowEntry, ShadowLog } from "./durable-shadow.ts";

/** A violated property, and its details. */
export interface Violation {
  readonly invariant: string;
  readonly detail: string;
}

/** The checker's view of one member, over all its processes. */
class CheckedMember {
  readonly id: number;
  /** What is certainly on its disk. */
  shadow = new DurableShadow();
  /** The log of its running process, durable or not. */
  view = new ShadowLog();
  /** The commit index of the running process. */
  commit = 0;
  /** The highest index passed to the state machine. */
  applied = 0;

  constructor(id: number) {
    this.id = id;
  }
}

/** Packs a term and an index into one number. */
const TERMS = 2 ** 20;

/**
 * Checks all members of a run for the safety properties of Raft and of the log below it. It reads
 * the bytes that reach the disks, the outgoing messages, each batch of each core, and the applied
 * commands. It keeps the first violation.
 */
export class ClusterSafetyChecker {
  violation: Violation | undefined;
  readonly members = new Map<number, CheckedMember>();
  readonly #leaders = new Map<number, number>();
  readonly #votes = new Map<number, number>();
  /** Every entry that was ever written, by index and term. */
  readonly #entries = new Map<number, { previousTerm: number | undefined; payload: Buffer }>();
  /** The term of each committed entry, by index. */
  readonly #committed: (number | undefined)[] = [];
  /** The term of the leader that committed it, by index. */
  readonly #committedIn: number[] = [];
  /** Keyed by the number of commands applied: the log's index and the state's hash. */
  readonly #states = new Map<number, { index: number; hash: string }>();
  maxCommitted = 0;

  member(id: number): CheckedMember {
    let member = this.members.get(id);
    if (!member) {
      member = new CheckedMember(id);
      this.members.set(id, member);
    }
    return member;
  }

  demand(condition: boolean, invariant: string, detail: () => string): void {
    if (!condition) this.violation ??= { invariant, detail: detail() };
  }

  /** A group of records has reached a member's disk. */
  durable(id: number, bytes: Uint8Array): void {
    const { shadow } = this.member(id);
    const { term } = shadow;
    shadow.take(bytes, (entry) => this.#written(id, entry));
    this.demand(
      shadow.term >= term,
      "a term never goes back",
      () => `member ${id} goes from term ${term} to ${shadow.term}`,
    );
    this.#vote(id, shadow.term, shadow.vote);
  }

  #vote(id: number, term: number, vote: number): void {
    if (vote === 0) return;
    const key = id * TERMS + term;
    const before = this.#votes.get(key);
    if (before === undefined) this.#votes.set(key, vote);
    this.demand(
      before === undefined || before === vote,
      "one vote a term",
      () => `member ${id} votes for ${before} and for ${vote} in term ${term}`,
    );
  }

  #written(id: number, { index, term, payload, previousTerm }: ShadowEntry): void {
    const key = index * TERMS + term;
    const known = this.#entries.get(key);
    if (!known) {
      this.#entries.set(key, { previousTerm, payload: Buffer.from(payload) });
      return;
    }
    this.demand(
      known.payload.equals(payload) &&
        (known.previousTerm === previousTerm || previousTerm === undefined || index === 1),
      "log matching",
      () => `entry ${index} of term ${term} on member ${id} is not the one on another member`,
    );
    known.previousTerm ??= previousTerm;
  }

  /** A process starts on what was read from the member's disk. */
  started(id: number, found: DurableShadow, lowestTorn: number): void {
    const member = this.member(id);
    const { shadow } = member;
    this.demand(
      found.term > shadow.term || (found.term === shadow.term && keepsVote(shadow, found)),
      "what was durable is found after a crash",
      () =>
        `member ${id} had term ${shadow.term}, vote ${shadow.vote}; now ${found.term}, ${found.vote}`,
    );
    const last = Math.min(shadow.log.lastIndex, lowestTorn - 1);
    for (let index = shadow.log.snapshotIndex + 1; index <= last; index++) {
      const term = shadow.log.terms[index];
      if (term === undefined || found.log.holds(index, term)) continue;
      this.demand(
        false,
        "what was durable is found after a crash",
        () => `member ${id} lost entry ${index} of term ${term}`,
      );
    }
    member.shadow = found;
    member.view = found.log.copy();
    member.commit = 0;
    member.applied = 0;
    this.#vote(id, found.term, found.vote);
  }

  /** The state that the core of a started process reports. */
  recovered(id: number, found: { term: number; commit: number; last: EntryId }): void {
    const member = this.member(id);
    const { shadow } = member;
    const { term, commit, last } = found;
    member.commit = commit;
    this.demand(
      shadow.term === term &&
        last.index === shadow.log.lastIndex &&
        (last.index === 0 || shadow.log.holds(last.index, last.term)),
      "a restarted member knows all that its disk holds",
      () =>
        `member ${id} starts with term ${term} and entry ${last.term}/${last.index}; its disk has term ${shadow.term} and entry ${shadow.log.terms.at(-1)}/${shadow.log.lastIndex}`,
    );
  }

  /** A batch of a member's core. */
  ready(id: number, raw: RawNode, { softState, hardState, entries, snapshot }: Ready): void {
    const member = this.member(id);
    if (snapshot) member.view.takeSnapshot(snapshot.index, snapshot.term);
    for (const { index, term } of entries) member.view.append(index, term);
    if (softState?.role === "leader") this.#elected(member, raw.basicStatus.term);
    if (hardState && hardState.commit !== member.commit)
      this.#commit(member, raw, hardState.commit);
  }

  #elected(member: CheckedMember, term: number): void {
    const other = this.#leaders.get(term) ?? member.id;
    this.#leaders.set(term, member.id);
    this.demand(
      other === member.id,
      "one leader a term",
      () => `members ${other} and ${member.id} lead in term ${term}`,
    );
    for (let index = this.maxCommitted; index > member.view.snapshotIndex; index--) {
      const committed = this.#committed[index];
      // A candidate may learn late that it won; entries committed in later terms do not bind it.
      if (committed === undefined || (this.#committedIn[index] as number) >= term) continue;
      if (member.view.terms[index] === committed) continue;
      this.demand(
        false,
        "leader completeness",
        () =>
          `member ${member.id} leads in term ${term} without committed entry ${committed}/${index}`,
      );
    }
  }

  #commit(member: CheckedMember, raw: RawNode, commit: number): void {
    const { id, view } = member;
    this.demand(
      commit > member.commit,
      "the commit index never goes back",
      () => `on member ${id} it goes from ${member.commit} to ${commit}`,
    );
    this.demand(
      commit <= view.lastIndex,
      "committed entries are in the log",
      () => `member ${id} commits ${commit}, its last entry is ${view.lastIndex}`,
    );
    const { role, term: current } = raw.basicStatus;
    for (let index = member.commit + 1; index <= commit; index++) {
      const term = view.terms[index];
      if (term === undefined) continue;
      const known = this.#committed[index];
      if (known === undefined) {
        this.#committed[index] = term;
        this.#committedIn[index] = current;
      }
      this.demand(
        known === undefined || known === term,
        "committed entries stay",
        () => `member ${id} commits ${term}/${index}, and ${known}/${index} was committed`,
      );
    }
    member.commit = commit;
    this.demand(
      role !== "leader" || view.terms[commit] === current,
      "a leader counts copies of its own term's entries only",
      () => `leader ${id} of term ${current} commits ${view.terms[commit]}/${commit}`,
    );
    if (commit <= this.maxCommitted) return;
    this.maxCommitted = commit;
    this.#demandMajority(raw, commit, view.terms[commit]);
  }

  #demandMajority(raw: RawNode, index: number, term: number | undefined): void {
    const { incoming, outgoing } = raw.status().config.voters;
    if (term === undefined) return;
    for (const voters of [incoming, outgoing]) {
      const holders = [...voters].filter((id) => this.member(id).shadow.log.holds(index, term));
      this.demand(
        voters.size === 0 || holders.length > voters.size / 2,
        "what is committed is durable on a majority",
        () => `entry ${term}/${index} is on the disks of ${holders} of ${[...voters]}`,
      );
    }
  }

  /** A message leaves a member: the state that it acknowledges must be on that member's disk. */
  sent(id: number, message: Message): void {
    const { shadow } = this.member(id);
    const { type, term, to, index, reject } = message;
    if (message.from !== id || reject || term < shadow.term) return;
    if (type === "MsgVoteResp") {
      this.demand(
        shadow.term === term && shadow.vote === to,
        "no message leaves before its hard state is durable",
        () =>
          `member ${id} votes for ${to} in term ${term}; on its disk: ${shadow.vote}, ${shadow.term}`,
      );
      this.#vote(id, term, to);
    } else if (type === "MsgAppResp") {
      this.demand(
        shadow.term === term && shadow.log.lastIndex >= index,
        "no acknowledgement before the sync",
        () =>
          `member ${id} acknowledges entry ${index} of term ${term}; on its disk: ${shadow.log.lastIndex}, ${shadow.term}`,
      );
    } else if (type === "MsgApp" || type === "MsgHeartbeat" || type === "MsgSnap") {
      this.demand(
        shadow.term === term && shadow.vote === id,
        "no message leaves before its hard state is durable",
        () =>
          `member ${id} leads in term ${term}; on its disk: vote ${shadow.vote}, term ${shadow.term}`,
      );
    }
  }

  /** A member's state machine has applied `commands` commands, the last from this index. */
  applied(id: number, commands: number, index: number, hash: string): void {
    const member = this.member(id);
    member.applied = Math.max(member.applied, index);
    this.demand(
      index <= member.commit,
      "applied <= commit <= last",
      () => `member ${id} applies ${index}, its commit index is ${member.commit}`,
    );
    const known = this.#states.get(commands);
    if (!known) this.#states.set(commands, { index, hash });
    this.demand(
      !known || (known.index === index && known.hash === hash),
      "equal states at equal positions",
      () =>
        `after ${commands} commands member ${id} is at ${index} with hash ${hash}, another at ${known?.index} with ${known?.hash}`,
    );
  }
}

/** A vote in flight to the disk may appear; one that was on it may not change. */
function keepsVote(before: DurableShadow, now: DurableShadow): boolean {
  return before.vote === 0 || before.vote === now.vote;
}
