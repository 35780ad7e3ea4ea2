import type { MembershipState } from "@heddle/consensus/membership";
import type {
  RaftMessage,
  RaftMessage__Output,
} from "@heddle/contracts/generated/heddle/v1/RaftMessage";
import type { SnapshotHead__Output } from "@heddle/contracts/generated/heddle/v1/SnapshotHead";
import { createMessage, type Message, type MessageType } from "@heddle/raft/message";
import type { SnapshotMeta } from "@heddle/storage/snapshot-store";

/** A message as it goes over the wire; its snapshot goes on a stream of its own. */
export function encodeMessage(message: Message): RaftMessage {
  return {
    type: message.type as NonNullable<RaftMessage["type"]>,
    to: message.to,
    from: message.from,
    term: message.term,
    logTerm: message.logTerm,
    index: message.index,
    entries: message.entries as NonNullable<RaftMessage["entries"]>,
    commit: message.commit,
    reject: message.reject,
    rejectHint: message.rejectHint,
    context: message.context,
  };
}

export function decodeMessage(message: RaftMessage__Output): Message {
  const { type, to, from, term, logTerm, index, commit, reject, rejectHint } = message;
  return createMessage({
    type: type as MessageType,
    to,
    from,
    term,
    logTerm,
    index,
    entries: message.entries,
    commit,
    reject,
    rejectHint,
    context: message.context,
  });
}

/** The message and the description of a snapshot, from the head of its stream. */
export function decodeSnapshotHead(head: SnapshotHead__Output): {
  readonly message: Message;
  readonly meta: SnapshotMeta;
} {
  const { index, term, hello } = head;
  const detail = JSON.parse(head.detail.toString()) as MembershipState;
  const snapshot = { index, term, confState: detail.confState, data: new Uint8Array(0) };
  const message = head.message ? decodeMessage(head.message) : undefined;
  return {
    message: createMessage({ type: "MsgSnap", to: 0, ...message, snapshot }),
    meta: { index, term, cluster: hello?.cluster ?? "", detail },
  };
}
