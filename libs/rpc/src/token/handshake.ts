import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Socket } from "node:net";
import { AppError } from "@heddle/base/errors";
import { type NodeClaim, readClaim, writeClaim } from "@heddle/pki/node-name";

// Mutual authentication of a plain TCP connection by the cluster token. Each side draws a nonce and
// proves by an HMAC over both nonces and both names that it has the token, which is never sent:
//
//   dialler:  heddle-auth 1 NONCE ROLE/NAME
//   listener: NONCE ROLE/NAME PROOF           or: refused MESSAGE
//   dialler:  PROOF
//   listener: ok                              or: refused MESSAGE
//
// It hides nothing of what follows and protects none of it from who can change packets: that is what
// TLS is for.

const GREETING = "heddle-auth";
const FORMAT = "1";
const NONCE_BYTES = 32;
const MAX_LINE_BYTES = 512;
/** Longer than a loaded machine needs; a silent connection is cut after it. */
const HANDSHAKE_MS = 5_000;
/** The start of HTTP/2: a probe's connection, which has no token. */
const HTTP2_PREFACE = "PRI";

/** Part of every refusal for a wrong token; `fromStatus` recognizes it. */
export const TOKEN_MISMATCH = "carries no valid cluster token";

/** A participant of a handshake, and its secret. */
export interface TokenHolder {
  readonly clusterToken: string;
  /** Absent in tools that are no node: they pass as a master without a name. */
  readonly node?: NodeClaim | undefined;
}

/** The other side's claim, and that it has the token. */
export interface ProvenClaim extends NodeClaim {
  /**
   * Equal at both ends and unique to this connection, so a signature over it is valid for no other.
   */
  readonly session: string;
}

const UNNAMED: NodeClaim = { role: "master", name: "unnamed" };

/** The dialler's part. Resolves with the listener's name; rejects with the socket unchanged. */
export async function proveToListener(socket: Socket, own: TokenHolder): Promise<ProvenClaim> {
  return within(socket, async () => {
    const claim = own.node ?? UNNAMED;
    const nonce = newNonce();
    socket.write(`${GREETING} ${FORMAT} ${nonce} ${writeClaim(claim)}\n`);
    const [theirNonce = "", name = "", proof = ""] = wordsOf(await readLine(socket));
    const peer = readClaim(name);
    const transcript = [nonce, theirNonce, writeClaim(claim), name];
    if (!peer || !isNonce(theirNonce) || !isProof(own, "listener", transcript, proof)) {
      throw tokenRefusal("the node that answered");
    }
    socket.write(`${proofOf(own, "dialler", transcript)}\n`);
    wordsOf(await readLine(socket));
    return { ...peer, session: sessionOf(transcript) };
  });
}

/**
 * The listener's part. Resolves with the dialler's name, or with undefined for a connection that
 * starts with HTTP/2 and has proved nothing. Rejects after it has sent the reason.
 */
export async function checkDialler(
  socket: Socket,
  own: TokenHolder,
): Promise<ProvenClaim | undefined> {
  return within(socket, async () => {
    try {
      if (await beginsWithHttp2(socket)) return undefined;
      const [greeting, format, nonce = "", name = ""] = wordsOf(await readLine(socket));
      const peer = readClaim(name);
      if (greeting !== GREETING || format !== FORMAT || !isNonce(nonce) || !peer) {
        throw new AppError(
          "invalid_value",
          "the peer that connected is not a node of this version; run the same build on every node",
        );
      }
      const claim = writeClaim(own.node ?? UNNAMED);
      const ownNonce = newNonce();
      const transcript = [nonce, ownNonce, name, claim];
      socket.write(`${ownNonce} ${claim} ${proofOf(own, "listener", transcript)}\n`);
      const [proof = ""] = wordsOf(await readLine(socket));
      if (!isProof(own, "dialler", transcript, proof)) throw tokenRefusal("the call");
      socket.write("ok\n");
      return { ...peer, session: sessionOf(transcript) };
    } catch (error) {
      if (error instanceof AppError && socket.writable) socket.write(`refused ${error.message}\n`);
      throw error;
    }
  });
}

function tokenRefusal(who: string): AppError {
  const message = `${who} ${TOKEN_MISMATCH}: start the node with the token file of its masters`;
  return new AppError("invalid_api_key", message);
}

function newNonce(): string {
  return randomBytes(NONCE_BYTES).toString("hex");
}

function isNonce(text: string): boolean {
  return /^[0-9a-f]{64}$/.test(text);
}

function sessionOf(transcript: readonly string[]): string {
  return createHash("sha256").update(transcript.join("\n")).digest("hex");
}

function proofOf(
  { clusterToken }: TokenHolder,
  side: "dialler" | "listener",
  transcript: readonly string[],
): string {
  // No part contains a line end, so different transcripts have different texts.
  const text = ["heddle handshake", FORMAT, side, ...transcript].join("\n");
  return createHmac("sha256", clusterToken).update(text).digest("hex");
}

function isProof(
  own: TokenHolder,
  side: "dialler" | "listener",
  transcript: readonly string[],
  shown: string,
): boolean {
  const expected = Buffer.from(proofOf(own, side, transcript));
  const given = Buffer.from(shown);
  return given.length === expected.length && timingSafeEqual(given, expected);
}

/** Throws the other side's refusal, if it sent one. */
function wordsOf(line: string): string[] {
  const refused = /^refused (.*)$/.exec(line)?.[1];
  if (refused === undefined) return line.split(" ");
  const code = refused.includes(TOKEN_MISMATCH) ? "invalid_api_key" : "unavailable";
  throw new AppError(code, refused);
}

/** Cuts a connection that does not complete its handshake in time. */
async function within<T>(socket: Socket, work: () => Promise<T>): Promise<T> {
  // The connection's next owner handles errors; one before that must not end the process.
  socket.on("error", () => undefined);
  const late = setTimeout(
    () => socket.destroy(new Error("the other side did not complete the handshake in time")),
    HANDSHAKE_MS,
  );
  try {
    return await work();
  } finally {
    clearTimeout(late);
  }
}

async function beginsWithHttp2(socket: Socket): Promise<boolean> {
  let seen = Buffer.alloc(0);
  await readUntil(socket, (chunk) => {
    seen = Buffer.concat([seen, chunk]);
    return seen.length >= HTTP2_PREFACE.length ? seen : undefined;
  });
  return seen.toString("latin1", 0, HTTP2_PREFACE.length) === HTTP2_PREFACE;
}

async function readLine(socket: Socket): Promise<string> {
  let line = Buffer.alloc(0);
  await readUntil(socket, (chunk) => {
    const end = chunk.indexOf(0x0a);
    line = Buffer.concat([line, end === -1 ? chunk : chunk.subarray(0, end)]);
    if (line.length > MAX_LINE_BYTES) {
      throw new AppError("invalid_value", "the peer that connected speaks another protocol");
    }
    return end === -1 ? undefined : chunk.subarray(end + 1);
  });
  return line.toString("latin1");
}

/**
 * Passes data to `take` until it returns the unused rest, which goes back to the socket. The socket
 * stays paused, so its next owner gets every byte.
 */
function readUntil(socket: Socket, take: (chunk: Buffer) => Buffer | undefined): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onReadable = () => {
    try {
      for (let chunk = socket.read() as Buffer | null; chunk; chunk = socket.read()) {
        const rest = take(chunk);
        if (!rest) continue;
        socket.off("readable", onReadable);
        if (rest.length > 0) socket.unshift(rest);
        resolve();
        return;
      }
    } catch (error) {
      reject(error);
    }
  };
  const onEnd = () => {
    const cause = socket.errored ?? undefined;
    const why = cause?.message ?? "the other side closed the connection in the handshake";
    reject(new AppError("unavailable", why, { cause }));
  };
  const ends = ["end", "close", "error"] as const;
  for (const event of ends) socket.on(event, onEnd);
  socket.on("readable", onReadable);
  onReadable();
  return promise.finally(() => {
    socket.off("readable", onReadable);
    for (const event of ends) socket.off(event, onEnd);
  });
}
