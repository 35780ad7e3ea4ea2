import type { Introduction } from "@heddle/contracts/generated/heddle/v1/Introduction";
import type { IntroductionReply__Output } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { FullIdentity } from "./identity.ts";

const DEADLINE_MS = 1_500;

/** Undefined where no member of this group answers. */
export type MemberAnswer = IntroductionReply__Output | undefined;

export interface AskingMember {
  readonly identity: FullIdentity;
  readonly credentials: NodeCredentials;
}

/** Asks the member at an address what it knows of the group and of this member. Never rejects. */
export async function askMember(
  { identity, credentials }: AskingMember,
  address: string,
  signal?: AbortSignal,
): Promise<MemberAnswer> {
  const { name, nonce, id: member, cluster } = identity;
  const limits = { deadlineMs: DEADLINE_MS, signal };
  try {
    const reply = await introduce(address, credentials, { name, nonce, member }, limits);
    return reply.cluster === cluster ? reply : undefined;
  } catch {
    return undefined; // The caller asks again.
  }
}

/** Sends an introduction over a connection of its own; rejects as `Peer.unary` does. */
export async function introduce(
  address: string,
  credentials: NodeCredentials,
  request: Introduction,
  limits: { readonly deadlineMs: number; readonly signal?: AbortSignal | undefined },
): Promise<IntroductionReply__Output> {
  // Loaded only now, for the Raft thread: a group of one needs no gRPC.
  const { introduceMethod } = await import("@heddle/rpc/proto");
  const { Peer } = await import("@heddle/rpc/peer");
  const peer = new Peer(address, credentials);
  try {
    return await peer.unary(introduceMethod, request, limits);
  } finally {
    peer.close();
  }
}
