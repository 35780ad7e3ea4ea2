import type { ErrorCode } from "@heddle/base/errors";
import { AppError } from "@heddle/base/errors";
import type { TlsMaterial } from "@heddle/pki/tls-identity";
import type { ConfChange } from "@heddle/raft/membership/conf-change";
import type { PlainCredentials } from "@heddle/rpc/credentials";
import type { FullIdentity } from "../member/identity.ts";
import type { Command, Member } from "../ports.ts";
import {
  PROPOSAL_HEADER_BYTES,
  type ProposalId,
  writeProposalId,
} from "../proposals/entry-codec.ts";
import type { RaftReplicaStatus } from "../replica/replica-status.ts";
import type { ThreadCounts } from "./thread-counts.ts";

/** What the thread is started with. */
export interface RaftThreadOptions {
  readonly identity: FullIdentity;
  /** The directory of the log and the snapshots. */
  readonly directory: string;
  /** Under TLS a `certificate` message replaces what this master shows. */
  readonly credentials: PlainCredentials;
  /** host:port of the masters' gRPC servers by name. */
  readonly addresses: ReadonlyMap<string, string>;
  /** Where to take the other masters' connections; port 0 for any free one. */
  readonly listen: { readonly host: string; readonly port: number };
  readonly segmentBytes?: number | undefined;
  readonly snapshotEntries?: number | undefined;
}

/** An AppError as it crosses between threads. */
export interface PlainError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryAfterMs?: number | undefined;
}

/** A call that is answered by one reply. */
export type ThreadCall =
  | { readonly kind: "readBarrier" }
  /** The reply follows a fresh `status`. */
  | { readonly kind: "refresh" }
  | { readonly kind: "takeSnapshot" }
  | { readonly kind: "renewLog" }
  | { readonly kind: "stop" }
  | {
      readonly kind: "changeMembers";
      readonly changes: ConfChange["changes"];
      readonly members: readonly Member[];
    };

/** Messages of the main thread to the thread. */
export type ToThread =
  /** Proposals in the form of `packProposals`, with consecutive numbers from `first` on. */
  | { readonly kind: "propose"; readonly first: number; readonly proposals: Uint8Array }
  | { readonly kind: "call"; readonly id: number; readonly call: ThreadCall }
  | { readonly kind: "transfer"; readonly to: number }
  /** The renewed certificate. */
  | { readonly kind: "certificate"; readonly material: TlsMaterial }
  /** Bytes of packed commands applied since the last report. */
  | { readonly kind: "applied"; readonly bytes: number }
  /** The state machine's answer to the task of that number. */
  | { readonly kind: "done"; readonly id: number; readonly chunk?: Uint8Array | undefined }
  | { readonly kind: "failed"; readonly id: number; readonly error: PlainError };

/** What the state machine is to do, one after the other; each task but `apply` is answered. */
export type MachineTask =
  /** Commands in the form of `packCommands`; answered by `applied` and by what was proposed here. */
  | { readonly kind: "apply"; readonly commands: Uint8Array }
  /** Begins a snapshot of the state as of now; `snapshotNext` answers with its pieces. */
  | { readonly kind: "snapshot"; readonly snapshot: number }
  | { readonly kind: "snapshotNext"; readonly snapshot: number }
  | { readonly kind: "snapshotEnd"; readonly snapshot: number }
  /** Replaces the state by the pieces that follow; the last answers when it is done. */
  | { readonly kind: "restore" }
  | { readonly kind: "restoreNext"; readonly chunk: Uint8Array }
  | { readonly kind: "restoreEnd"; readonly complete: boolean };

/** The state of the replica and of its transport. */
export interface ThreadStatus extends RaftReplicaStatus {
  readonly nextMemberId: number;
  /** The members with their names and addresses. */
  readonly roster: readonly Member[];
  readonly connected: readonly number[];
  readonly counts: ThreadCounts;
}

/** Messages of the thread to the main thread; those of one turn are sent as one list. */
export type FromThread =
  | { readonly kind: "opened"; readonly port: number }
  | { readonly kind: "openFailed"; readonly error: PlainError }
  /** As of `atMs` by `machineMs`. */
  | { readonly kind: "status"; readonly status: ThreadStatus; readonly atMs: number }
  | { readonly kind: "task"; readonly id: number; readonly task: MachineTask }
  /** A proposal that was refused, or whose outcome is unknown. */
  | { readonly kind: "rejected"; readonly proposal: number; readonly error: PlainError }
  | { readonly kind: "reply"; readonly id: number; readonly error?: PlainError | undefined }
  | { readonly kind: "fatal"; readonly error: PlainError }
  /** This member is no longer in the group. */
  | { readonly kind: "removed" }
  | {
      readonly kind: "log";
      readonly level: "info" | "warn" | "error";
      readonly fields: Readonly<Record<string, unknown>>;
      readonly message: string;
    };

/** Milliseconds of a clock that all threads share, and that runs while the process is stopped. */
export function machineMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

export function toPlain(error: AppError): PlainError {
  const { code, message, retryAfterMs } = error;
  return { code, message, retryAfterMs };
}

export function fromPlain({ code, message, retryAfterMs }: PlainError): AppError {
  return new AppError(code, message, retryAfterMs === undefined ? {} : { retryAfterMs });
}

const COMMAND_HEAD_BYTES = 24;

/** Commands in one piece that moves between threads without a copy; it fills its whole buffer. */
export function packCommands(commands: readonly Command[]): Uint8Array<ArrayBuffer> {
  let size = 0;
  for (const { data } of commands) size += COMMAND_HEAD_BYTES + data.byteLength;
  const packed = unfilled(size);
  const view = new DataView(packed.buffer);
  let at = 0;
  for (const { index, data, proposal = 0 } of commands) {
    view.setFloat64(at, index);
    view.setFloat64(at + 8, proposal);
    view.setUint32(at + 16, data.byteLength);
    packed.set(data, at + COMMAND_HEAD_BYTES);
    at += COMMAND_HEAD_BYTES + data.byteLength;
  }
  return packed;
}

/** A new buffer without zeros: all of it will be written. */
function unfilled(size: number): Uint8Array<ArrayBuffer> {
  return Buffer.allocUnsafeSlow(size);
}

const LENGTH_BYTES = 4;

/**
 * Commands as the data of future entries, in one piece that moves between threads and stays in
 * memory as the entries' own. Each is its length as u32, the proposal's id and the command.
 */
export function packProposals(
  commands: readonly Uint8Array[],
  first: ProposalId,
): Uint8Array<ArrayBuffer> {
  let size = 0;
  for (const { byteLength } of commands) size += LENGTH_BYTES + PROPOSAL_HEADER_BYTES + byteLength;
  const packed = unfilled(size);
  const view = new DataView(packed.buffer);
  const id = { ...first };
  let at = 0;
  for (const command of commands) {
    view.setUint32(at, PROPOSAL_HEADER_BYTES + command.byteLength);
    writeProposalId(view, at + LENGTH_BYTES, id);
    packed.set(command, at + LENGTH_BYTES + PROPOSAL_HEADER_BYTES);
    at += LENGTH_BYTES + PROPOSAL_HEADER_BYTES + command.byteLength;
    id.sequence++;
  }
  return packed;
}

export function unpackProposals(packed: Uint8Array): Uint8Array[] {
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const proposals: Uint8Array[] = [];
  for (let at = 0; at < packed.byteLength; ) {
    const from = at + LENGTH_BYTES;
    at = from + view.getUint32(at);
    proposals.push(packed.subarray(from, at));
  }
  return proposals;
}

export function unpackCommands(packed: Uint8Array): Command[] {
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const commands: Command[] = [];
  for (let at = 0; at < packed.byteLength; ) {
    const index = view.getFloat64(at);
    const proposal = view.getFloat64(at + 8);
    const from = at + COMMAND_HEAD_BYTES;
    at = from + view.getUint32(at + 16);
    const data = packed.subarray(from, at);
    commands.push({ index, data, proposal: proposal === 0 ? undefined : proposal });
  }
  return commands;
}
