import { type ClientHttp2Session, connect } from "node:http2";
import type { KvClient, MemberView } from "./kv-client.ts";

const NO_BYTES: Buffer = Buffer.alloc(0);

/**
 * A client of etcd's gRPC API directly over HTTP/2: grpc-js would use more of the load generator's
 * core than the calls.
 */
export class EtcdClient implements KvClient {
  readonly #session: ClientHttp2Session;
  readonly #authority: string;

  constructor(address: string) {
    this.#authority = address;
    this.#session = connect(`http://${address}`);
    this.#session.on("error", () => undefined);
  }

  async put(key: string, value: Uint8Array): Promise<void> {
    await this.#call("/etcdserverpb.KV/Put", [
      bytesField(1, Buffer.from(key)),
      bytesField(2, value),
    ]);
  }

  async read(key: string): Promise<void> {
    await this.#call("/etcdserverpb.KV/Range", [bytesField(1, Buffer.from(key))]);
  }

  /** The member's id, the leader's, and the term; ids are decimal texts, as they have 64 bits. */
  async status(): Promise<MemberView & { readonly id: string; readonly leader: string }> {
    const reply = readFields(await this.#call("/etcdserverpb.Maintenance/Status", []));
    const header = readFields(reply.get(1) as Buffer);
    const id = String(header.get(2) ?? 0);
    const leader = String(reply.get(4) ?? 0);
    return { id, leader, isLeader: id === leader, term: Number(header.get(4) ?? 0) };
  }

  /** Makes the member, which must lead, hand its leadership to another one. */
  async moveLeader(target: string): Promise<void> {
    const field = Buffer.concat([Buffer.from([8]), varint(BigInt(target))]);
    await this.#call("/etcdserverpb.Maintenance/MoveLeader", [field]);
  }

  close(): void {
    this.#session.destroy();
  }

  #call(path: string, fields: readonly Buffer[]): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const stream = this.#session.request({
        ":method": "POST",
        ":path": path,
        ":authority": this.#authority,
        "content-type": "application/grpc",
        te: "trailers",
      });
      const parts: Buffer[] = [];
      let status = "";
      const takeStatus = (headers: Readonly<Record<string, unknown>>) => {
        const { "grpc-status": code, "grpc-message": text } = headers;
        if (code !== undefined) status = code === "0" ? "ok" : `${code} ${text}`;
      };
      stream.on("response", takeStatus);
      stream.on("trailers", takeStatus);
      stream.on("data", (part: Buffer) => parts.push(part));
      stream.on("error", reject);
      stream.on("close", () => {
        if (status !== "ok") return reject(new Error(`etcd: ${status || "the connection ended"}`));
        resolve(parts.length === 0 ? NO_BYTES : Buffer.concat(parts).subarray(5));
      });
      stream.end(grpcMessage(fields));
    });
  }
}

function grpcMessage(fields: readonly Buffer[]): Buffer {
  const length = fields.reduce((sum, field) => sum + field.length, 0);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, ...fields]);
}

function bytesField(number: number, bytes: Uint8Array): Buffer {
  const tag = Buffer.from([(number << 3) | 2]);
  return Buffer.concat([tag, varint(BigInt(bytes.byteLength)), bytes]);
}

function varint(value: bigint): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 128n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return Buffer.from([...bytes, Number(rest)]);
}

/** The fields of a protobuf message that are varints or bytes, by number; the last one wins. */
function readFields(message: Buffer): Map<number, bigint | Buffer> {
  const fields = new Map<number, bigint | Buffer>();
  let at = 0;
  const next = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message[at++] ?? 0;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = Number(next());
    const value = next();
    if ((tag & 7) === 0) fields.set(tag >> 3, value);
    else {
      fields.set(tag >> 3, message.subarray(at, at + Number(value)));
      at += Number(value);
    }
  }
  return fields;
}
