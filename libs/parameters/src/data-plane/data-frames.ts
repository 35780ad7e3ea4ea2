import { AppError, isErrorCode } from "@heddle/base/errors";

/**
 * The protocol of a data connection, which the receiver of the data opens. First a hello of magic
 * and job token. Then any number of requests, each a length and JSON, answered by a head and the
 * bytes. All numbers are little-endian.
 */
export const HELLO_BYTES = 40;
/** The length of a job's token. */
export const TOKEN_BYTES = 32;
export const HEAD_BYTES = 24;
/** A request that is longer ends its connection. */
export const MAX_REQUEST_BYTES = 4096;
/** Written or added at once: small enough to stay in a core's cache. */
export const SLICE_BYTES = 512 * 1024;

/** For both ends: a machine that disappears is noticed while an answer is awaited. */
export const SOCKET_OPTIONS = {
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: 10_000,
} as const;

const MAGIC = "HEDDLE1\n";
/** The bound of an error's text. */
const MAX_ERROR_BYTES = 8192;
/** In JSON a character takes six bytes at most. */
const MAX_ERROR_LETTERS = 1_300;

export function dataHelloFrame(token: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(MAGIC), token]);
}

/** The token of a hello, or undefined where the hello is invalid. */
export function tokenOfHello(frame: Buffer): Buffer | undefined {
  return frame.toString("latin1", 0, 8) === MAGIC ? frame.subarray(8, HELLO_BYTES) : undefined;
}

export function requestFrame(request: object): Buffer {
  const body = Buffer.from(JSON.stringify(request));
  const head = Buffer.alloc(4);
  head.writeUInt32LE(body.length);
  return Buffer.concat([head, body]);
}

/** The head of an answer: `bytes` of data of a version follow. */
export interface DataHead {
  readonly version: number;
  readonly bytes: number;
}

export function headFrame({ version, bytes }: DataHead): Buffer {
  const frame = Buffer.alloc(HEAD_BYTES);
  frame.writeDoubleLE(version, 8);
  frame.writeDoubleLE(bytes, 16);
  return frame;
}

/** A head with an error, and its text; a long message is cut. */
export function errorFrame({ code, message }: AppError): Buffer {
  const body = Buffer.from(JSON.stringify({ code, message: message.slice(0, MAX_ERROR_LETTERS) }));
  const head = headFrame({ version: 0, bytes: body.length });
  head.writeUInt32LE(1);
  return Buffer.concat([head, body]);
}

export function parseHead(frame: Buffer): DataHead & { readonly failed: boolean } {
  const failed = frame.readUInt32LE() !== 0;
  const head = { failed, version: frame.readDoubleLE(8), bytes: frame.readDoubleLE(16) };
  const sane = Number.isSafeInteger(head.bytes) && head.bytes >= 0;
  if (sane && !(failed && head.bytes > MAX_ERROR_BYTES)) return head;
  throw new AppError("server_error", "a data connection broke its protocol: run one version");
}

/** The error that a peer sent, with its code; an unknown one becomes an error of the protocol. */
export function receivedError(text: Buffer, peer: string): AppError {
  const { code, message } = parsedError(text);
  return new AppError(isErrorCode(code) ? code : "server_error", String(message), { node: peer });
}

function parsedError(text: Buffer): { readonly code?: unknown; readonly message?: unknown } {
  const broken = { message: "a data connection broke its protocol: run one version" };
  try {
    const content: unknown = JSON.parse(text.toString());
    return typeof content === "object" && content !== null ? content : broken;
  } catch {
    return broken;
  }
}
