import { EMPTY_CONF_STATE } from "@heddle/raft/core/state";
import type { Entry } from "@heddle/raft/log/entry";
import { type ConfChange, decodeConfChange } from "@heddle/raft/membership/conf-change";
import type { SnapshotId, SnapshotMeta } from "@heddle/storage/snapshot-file";
import type { Member, StateMachine } from "../ports.ts";
import { commandOf } from "../proposals/entry-codec.ts";
import { DurableLog, type DurableLogOptions } from "./durable-log.ts";
import { decodeContext, firstMembership, Membership, type MembershipState } from "./membership.ts";

type LogLocation = Omit<DurableLogOptions, "restore">;

/** What a stopped member's files held: the state machine that was given has taken it all in. */
export interface OfflineState {
  /** The last entry; false from `isEmpty` says that there is one. */
  readonly last: SnapshotId;
  /** Entries at the end that this member did not yet know to be committed. */
  readonly unconfirmed: number;
  /** Who belonged to the group, as far as this member knew. */
  readonly members: readonly Member[];
  readonly isEmpty: boolean;
}

/** The bytes of the log that are read at a time: a long log needs no more memory. */
const BATCH_BYTES = 1024 * 1024;

/**
 * Restores a stopped member's snapshot and applies its whole log. Entries that may not be committed are included:
 * the commit index reaches the disk later than the answer reaches the caller.
 * To lose an answered change is worse than to keep one that was rejected. Rejects as DurableLog.open does.
 */
export async function readOfflineState(
  storage: LogLocation,
  machine: StateMachine<unknown>,
): Promise<OfflineState> {
  let membership = new Membership({ confState: EMPTY_CONF_STATE, members: [], lastId: 0 });
  const restore = async (meta: SnapshotMeta, chunks: AsyncIterable<Uint8Array>) => {
    await machine.restore(chunks);
    membership = new Membership(meta.detail as MembershipState);
  };
  const log = await DurableLog.open({ ...storage, restore });
  try {
    const { memory, isEmpty } = log;
    const lastIndex = memory.lastIndex();
    for (let next = log.snapshotIndex + 1; next <= lastIndex; ) {
      const entries = memory.entries(next, lastIndex + 1, BATCH_BYTES);
      if (typeof entries === "string") throw new Error(`entry ${next} of the log is ${entries}`);
      for (const entry of entries) await applyOffline(entry, machine, membership);
      next += entries.length;
    }
    const { commit } = memory.initialState().hardState;
    const term = memory.term(lastIndex);
    const last = { index: lastIndex, term: typeof term === "number" ? term : 0 };
    const unconfirmed = Math.max(0, lastIndex - Math.max(commit, log.snapshotIndex));
    return { last, unconfirmed, members: membership.members, isEmpty };
  } finally {
    await log.close();
  }
}

async function applyOffline(
  entry: Entry,
  machine: StateMachine<unknown>,
  membership: Membership,
): Promise<void> {
  if (entry.type === "EntryNormal") {
    const command = commandOf(entry.data);
    if (command) await machine.apply([{ index: entry.index, data: command }]);
    return;
  }
  const change = decodeConfChange(entry) as ConfChange;
  const { members = [] } = decodeContext(change.context);
  if (membership.refusal(change, { members }) !== undefined) return;
  membership.apply(change, { members }, undefined);
}

/**
 * Makes the files of a new group with one member, whose state is the given one and whose log continues
 * after `last`. The directory must hold no log yet.
 */
export async function foundGroup(
  storage: LogLocation,
  member: Member,
  last: SnapshotId,
  state: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const restore = () => Promise.reject(new Error("the directory holds a snapshot already"));
  const log = await DurableLog.open({ ...storage, restore });
  try {
    await log.bootstrap(firstMembership([member]), state, last);
  } finally {
    await log.close();
  }
}
