import { AppError, toAppError } from "@heddle/base/errors";
import type { Introduction__Output } from "@heddle/contracts/generated/heddle/v1/Introduction";
import type { IntroductionReply } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { Log } from "@heddle/observability/logger";
import type { ConfChange } from "@heddle/raft/membership/conf-change";
import type { Member } from "../ports.ts";
import type { FullIdentity } from "./identity.ts";
import { supportedBy } from "./version-raise.ts";

/** What is needed of the replica of the member that answers. */
export interface MembershipReplica {
  /** In the order of their ids. */
  readonly members: readonly Member[];
  readonly nextMemberId: number;
  status(): { readonly members: readonly { readonly id: number; readonly votes: boolean }[] };
  /** Resolves when the others are as of now. */
  refresh(): Promise<void>;
  changeMembers(changes: ConfChange["changes"], members: readonly Member[]): Promise<void>;
}

/** The replicated state, as far as a new member must fit to it. */
export interface ClusterRules {
  /** The cluster version, and the highest that this master supports. */
  readonly version: number;
  readonly newest: number;
  /** The id of the key that encrypts the log. */
  readonly secretsKey: string | undefined;
}

interface MemberChangesParts {
  readonly control: ClusterRules;
  /** The ids of the keys that this master holds. */
  readonly secretsKeys: readonly string[];
  readonly log: Log;
  /** Whether the member is connected here, or has answered the leader recently. */
  readonly isActive: (id: number) => Promise<boolean>;
  /** Uses up the join token of a new master; rejects where it shows none that is for it. */
  readonly admit: (
    from: Introduction__Output,
  ) => Promise<{ readonly takeBack: () => Promise<void> }>;
}

/**
 * Answers the introduction of another master.
 * - A member that the group knows by its nonce gets its id.
 * - A member that asks whether it is still in the group gets the members.
 * - Any other master needs a join token of its name; it joins under a new id as a learner.
 * It replaces the member of its name. Rejects with `conflict` where that member is active.
 */
export async function memberChanges(
  own: FullIdentity,
  replica: MembershipReplica,
  from: Introduction__Output,
  { log, isActive, admit, control, secretsKeys }: MemberChangesParts,
): Promise<IntroductionReply> {
  // Two that join one after the other must not be given one id.
  await replica.refresh();
  const { name, nonce, cluster } = own;
  const members = [...replica.members];
  const lastId = replica.nextMemberId - 1;
  const known = { name, nonce, cluster, members, lastId };
  const reply = { ...known, supports: control.newest, secretsKeys: [...secretsKeys] };
  if (from.member !== 0) {
    const votes = replica.status().members.some(({ id, votes }) => id === own.id && votes);
    const id = members.some((member) => member.id === from.member) ? from.member : 0;
    return { ...reply, id, votes };
  }
  // While a change is under way there may be two: one that leaves, and after it its successor.
  const namesake = members.findLast((member) => member.name === from.name);
  if (namesake?.nonce === from.nonce) {
    return { ...reply, id: namesake.id, members: votersOf(replica) };
  }
  if (supportedBy(from) < control.version) throw tooOld(from, control.version);
  checkHoldsKey(from, control.secretsKey);
  // A member that has not caught up with the group does not know the members yet.
  if (members.length === 0) return reply;
  if (namesake && (await isActive(namesake.id))) {
    const message = `${from.name} is a master of this group already, and runs (member ${namesake.id} at ${namesake.address}). Give the new one another --name; if it is to take that one's place, stop that one first.`;
    log.warn({ name: from.name, address: from.address }, "a second master of one name is refused");
    throw new AppError("conflict", message);
  }
  const admission = await admit(from);
  const id = replica.nextMemberId;
  const joined = { id, name: from.name, address: from.address, nonce: from.nonce };
  const changes = [
    ...(namesake ? [{ type: "removeNode" as const, nodeId: namesake.id }] : []),
    { type: "addLearnerNode" as const, nodeId: id },
  ];
  try {
    await replica.changeMembers(changes, [joined]);
    log.info({ member: id, name: from.name, replaces: namesake?.id }, "a master joins the group");
    // Not first in any sense: it must not begin with a log of its own.
    return { ...reply, id, lastId: id };
  } catch (error) {
    const why = toAppError(error).message;
    await admission.takeBack();
    // Several that join through several masters at once may be given one id: the first keeps it.
    log.warn({ name: from.name, error: why }, "a master could not join yet, and asks again");
    return reply;
  }
}

function tooOld(from: Introduction__Output, version: number): AppError {
  const message = `${from.name} supports cluster versions up to ${supportedBy(from)}, and this cluster has version ${version}. Start it with the build that the other masters run, or a newer one.`;
  return new AppError("conflict", message);
}

/** It would receive the state in a form that it cannot read. */
function checkHoldsKey({ name, secretsKeys }: Introduction__Output, key: string | undefined): void {
  if (key === undefined || secretsKeys.includes(key)) return;
  const given = secretsKeys.length === 0 ? "no key" : `the keys ${secretsKeys.join(", ")}`;
  const message = `The state of this cluster is encrypted with the secrets key ${key}, and ${name} was started with ${given}. Start it with the --secrets-key-file of the other masters.`;
  throw new AppError("conflict", message);
}

/**
 * The voters, for a member without a log. A learner that missed the answer to its join is not among them.
 * So it cannot take itself for one of the first members and start with a log of its own.
 */
function votersOf(replica: MembershipReplica): Member[] {
  const { members: current } = replica.status();
  const voters = new Set(current.flatMap(({ id, votes }) => (votes ? [id] : [])));
  return replica.members.filter(({ id }) => voters.has(id));
}
