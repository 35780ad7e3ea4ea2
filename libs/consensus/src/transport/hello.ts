import { AppError, isErrorCode } from "@heddle/base/errors";
import type { FullIdentity } from "../member/identity.ts";
import { isPublicKey, isSignedBy, signWith } from "../member/member-key.ts";
import type { Member } from "../ports.ts";
import { FRAME_KINDS, type Frame, frameOf } from "./frames.ts";

/** Who speaks on a connection, to whom, and what for; JSON on the wire. */
export interface Hello {
  /** The format of the frames and messages; another one is refused. */
  readonly format: 1;
  readonly cluster: string;
  readonly from: number;
  readonly to: number;
  /** Which start of that member this is; an older process of it is refused. */
  readonly incarnation: number;
  readonly purpose: "messages" | "snapshot";
  /** Without TLS: the member's signature of the rest, for this connection. */
  readonly proof?: string | undefined;
}

type Unsigned = Omit<Hello, "proof">;

/** Signed where this member has a key; a member without one is known by its membership. */
export function signedHello(hello: Unsigned, session: string, own: FullIdentity): Hello {
  const { nonce, key } = own;
  return key === undefined
    ? hello
    : { ...hello, proof: signWith({ nonce, key }, signed(hello, session)) };
}

function signed({ cluster, from, to, incarnation, purpose }: Unsigned, session: string): string {
  return ["heddle raft hello", session, cluster, from, to, incarnation, purpose].join("\n");
}

/** Throws where the other side has not signed with the key of the member for which it speaks. */
export function checkProof(hello: Hello, { id, name, nonce }: Member, session: string): void {
  // A member of a build without keys; it is known by the cluster token alone.
  if (!isPublicKey(nonce)) return;
  const proof = typeof hello.proof === "string" ? hello.proof : "";
  if (isSignedBy(nonce, signed(hello, session), proof)) return;
  const message = `the peer that connected does not have the key of member ${id} (${name})`;
  throw new AppError("permission_denied", message);
}

export function helloFrame(hello: Hello): Buffer {
  return frameOf(FRAME_KINDS.hello, Buffer.from(JSON.stringify(hello)));
}

/** Says why a connection is cut. */
export function refusalFrame({ code, message }: AppError): Buffer {
  return frameOf(FRAME_KINDS.refused, Buffer.from(JSON.stringify({ code, message })));
}

/** The hello that a connection must begin with; throws what the other side refused us with. */
export function readHello(frame: Frame | undefined): Hello {
  if (!frame) throw new AppError("unavailable", "the other master closed the connection");
  const content = parse(frame);
  if (frame.kind === FRAME_KINDS.refused) {
    const { code, message } = content as { code?: unknown; message?: unknown };
    throw new AppError(isErrorCode(code) ? code : "unavailable", String(message));
  }
  const hello = content as Hello;
  if (frame.kind === FRAME_KINDS.hello && hello.format === 1) return hello;
  throw new AppError(
    "invalid_value",
    "the peer that connected is not a master of this version; run the same build on every master",
  );
}

function parse({ body }: Frame): object {
  try {
    return (JSON.parse(body.toString()) ?? {}) as object;
  } catch (cause) {
    throw new AppError(
      "invalid_value",
      "the peer that connected is not a master; check the addresses of the masters",
      { cause },
    );
  }
}

/**
 * Throws where the other side is not who may speak to this member. The name that it has shown must be
 * that of the member for which it speaks: no master's certificate lets it vote for another.
 */
export function checkHello(
  hello: Hello,
  identity: FullIdentity,
  members: readonly Member[],
  shownName: string,
): void {
  const { cluster, from, to } = hello;
  if (cluster !== identity.cluster) {
    const message = `the master at the other end belongs to the cluster ${cluster}, this one to ${identity.cluster}`;
    throw new AppError("precondition_failed", message);
  }
  if (to !== identity.id || from === identity.id || !Number.isSafeInteger(from)) {
    const message = `this is member ${identity.id}, and not ${to}, which member ${from} asked for`;
    throw new AppError("precondition_failed", message);
  }
  // A new member knows no others; a member that is unknown here has a higher id than all.
  const known = members.find(({ id }) => id === from);
  if (known && known.name !== shownName) {
    const message = `${shownName} does not speak for member ${from}, which is ${known.name}`;
    throw new AppError("permission_denied", message);
  }
  const newest = Math.max(identity.id, ...members.map(({ id }) => id));
  if (!known && members.length > 0 && from < newest) {
    throw new AppError("precondition_failed", `member ${from} was removed from the group`);
  }
}
