import { AppError } from "@heddle/base/errors";
import type { ConfState, Snapshot } from "@heddle/raft/core/state";
import type { Entry } from "@heddle/raft/log/entry";
import { type ConfChange, decodeConfChange } from "@heddle/raft/membership/conf-change";
import type { Command, StateMachine } from "../ports.ts";
import { commandOf, type ProposalId, sequenceOf } from "../proposals/entry-codec.ts";
import type { PendingProposals } from "../proposals/pending-proposals.ts";
import type { DurableLog } from "./durable-log.ts";
import { decodeContext, Membership, type MembershipState } from "./membership.ts";

export interface ApplierParts<Reply> {
  readonly own: Pick<ProposalId, "node" | "incarnation">;
  readonly log: DurableLog;
  readonly machine: StateMachine<Reply>;
  readonly proposals: PendingProposals<Reply>;
  readonly changes: PendingProposals<void>;
  /** Makes a committed membership change take effect in Raft. */
  readonly applyConfChange: (change: ConfChange, index: number) => ConfState | undefined;
  readonly onMembersChanged: () => void;
}

/**
 * The state as of the last applied entry: the state machine's and the membership. Its calls must not
 * overlap; it answers those of this replica's callers whose entries it applies.
 */
export class Applier<Reply> {
  readonly #parts: ApplierParts<Reply>;
  membership: Membership;
  applied: { readonly index: number; readonly term: number };
  /** Bytes of the entries applied since the newest snapshot was begun. */
  bytesSinceSnapshot = 0;
  /** True after a member was added: it needs a snapshot that knows it. */
  wantsSnapshot = false;
  /** True where the newest snapshot's file is damaged: one is wanted even of the same entry. */
  renewsSnapshot = false;

  constructor(parts: ApplierParts<Reply>, membership: Membership) {
    this.#parts = parts;
    this.membership = membership;
    const { index, term } = parts.log.memory.snapshot();
    this.applied = { index, term };
  }

  async apply(entries: readonly Entry[]): Promise<void> {
    // A snapshot may have overtaken entries on their way to be applied.
    const isFresh = (entries[0]?.index ?? 0) > this.applied.index;
    const fresh = isFresh ? entries : entries.filter(({ index }) => index > this.applied.index);
    let from = 0;
    for (let at = 0; at < fresh.length; at++) {
      const entry = fresh[at] as Entry;
      if (entry.type === "EntryNormal") continue;
      await this.#applyCommands(fresh.slice(from, at));
      await this.#applyChange(entry);
      from = at + 1;
    }
    await this.#applyCommands(from === 0 ? fresh : fresh.slice(from));
    this.#parts.proposals.rejectBefore(this.applied.term);
    this.#parts.changes.rejectBefore(this.applied.term);
  }

  /** Puts a snapshot that Raft has taken in into the place of the state. */
  async restore(snapshot: Snapshot): Promise<void> {
    const { log, machine, onMembersChanged } = this.#parts;
    const meta = await log.snapshots.meta(snapshot);
    await machine.restore(log.snapshots.chunks(snapshot));
    this.membership = new Membership(meta.detail as MembershipState);
    this.applied = { index: snapshot.index, term: snapshot.term };
    this.bytesSinceSnapshot = 0;
    onMembersChanged();
    await log.dropReplaced(snapshot);
  }

  /**
   * Begins a snapshot of the state as of this call; resolves when it is kept. Undefined where there
   * is nothing new to keep, or the membership is not known.
   */
  beginSnapshot(): Promise<void> | undefined {
    const { log, machine } = this.#parts;
    const membership = this.membership.state();
    const oldest = this.renewsSnapshot ? log.snapshotIndex : log.snapshotIndex + 1;
    if (!membership || this.applied.index < oldest) return undefined;
    this.wantsSnapshot = false;
    this.renewsSnapshot = false;
    this.bytesSinceSnapshot = 0;
    return log.compact(this.applied, membership, machine.snapshot());
  }

  async #applyCommands(entries: readonly Entry[]): Promise<void> {
    const last = entries.at(-1);
    if (!last) return;
    const { machine, proposals, own } = this.#parts;
    const commands: Command[] = [];
    for (const { index, data } of entries) {
      this.bytesSinceSnapshot += data.length;
      const command = commandOf(data);
      if (command) commands.push({ index, data: command, proposal: sequenceOf(data, own) });
    }
    const replies = commands.length > 0 ? await machine.apply(commands) : [];
    this.applied = { index: last.index, term: last.term };
    for (let at = 0; at < commands.length; at++) {
      const { proposal } = commands[at] as Command;
      if (proposal !== undefined) proposals.resolve(proposal, replies[at] as Reply);
    }
  }

  #isOwn({ node, incarnation }: ProposalId): boolean {
    const { own } = this.#parts;
    return node === own.node && incarnation === own.incarnation;
  }

  async #applyChange(entry: Entry): Promise<void> {
    const { log, changes, applyConfChange, onMembersChanged } = this.#parts;
    // After a crash the log is applied up to the commit index at once. Were that behind, this node
    // might campaign or vote with a membership that it had left already.
    await log.flush();
    const change = decodeConfChange(entry) as ConfChange;
    const { members = [], proposal } = decodeContext(change.context);
    const refusal = this.membership.refusal(change, { members });
    if (refusal === undefined) {
      const confState = applyConfChange(change, entry.index);
      this.membership.apply(change, { members }, confState);
      if (members.length > 0) this.wantsSnapshot = true;
      onMembersChanged();
    }
    this.applied = { index: entry.index, term: entry.term };
    if (!proposal || !this.#isOwn(proposal)) return;
    if (refusal === undefined) changes.resolve(proposal.sequence, undefined);
    else changes.reject(proposal.sequence, new AppError("conflict", `${refusal}.`));
  }
}
