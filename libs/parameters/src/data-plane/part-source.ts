import type { Server, ServerWritableStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { ParameterChunk } from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import type { TakePart__Output } from "@heddle/contracts/generated/heddle/v1/TakePart";
import { createOwnCertificate } from "@heddle/pki/certificate-authority";
import { type CallContext, methodHandler } from "@heddle/rpc/method-handler";
import { partSourceService } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { writeAll } from "@heddle/rpc/write-all";
import { type DataAnswer, DataListener } from "./data-listener.ts";
import { type DataPath, parameterChunks } from "./data-route.ts";
import type { EncodedPart } from "./part-encoder.ts";

type TakeCall = ServerWritableStream<TakePart__Output, ParameterChunk>;

export interface PartSourceOptions {
  readonly attempt: number;
  readonly jobToken: Uint8Array;
  /** Where nodes use TLS it serves gRPC with a certificate of its own. */
  readonly isEncrypted: boolean;
  /** An address of this machine that servers reach; a private one. */
  readonly host: string;
  /** A new socket file's path, of at most 100 bytes. */
  readonly socketPath: string;
  readonly paths: readonly DataPath[];
}

/** Keeps a worker's latest part, by shard, and sends it to servers as often as they ask. */
export class PartSource {
  readonly #options: PartSourceOptions;
  readonly #listener: DataListener;
  #grpc: Server | undefined;
  #certificate = "";
  #clock = -1;
  #parts: ReadonlyMap<number, EncodedPart> = new Map();
  readonly #addresses: string[] = [];

  private constructor(options: PartSourceOptions) {
    this.#options = options;
    this.#listener = new DataListener({
      token: options.jobToken,
      answer: (request) => this.#answer(request as { shard: number; clock: number }),
    });
  }

  static async start(options: PartSourceOptions): Promise<PartSource> {
    const source = new PartSource(options);
    for (const path of options.paths) source.#addresses.push(await source.#listen(path));
    return source;
  }

  /** Addresses for servers, the best first. */
  get addresses(): readonly string[] {
    return this.#addresses;
  }

  /** PEM, by which servers identify it over gRPC; empty where nodes do not use TLS. */
  get certificate(): string {
    return this.#certificate;
  }

  /** Connections that showed another token. */
  get unauthenticated(): number {
    return this.#listener.unauthenticated;
  }

  /** Keeps the parts of one push, by shard, in place of the previous ones. */
  keep(clock: number, parts: ReadonlyMap<number, EncodedPart>): void {
    this.#clock = clock;
    this.#parts = parts;
  }

  /** The kept parts are in an update that this worker has pulled. */
  release(): void {
    this.#parts = new Map();
  }

  async close(): Promise<void> {
    this.#listener.close();
    if (this.#grpc) await closeServer(this.#grpc, 0);
  }

  async #listen(path: DataPath): Promise<string> {
    const { host, socketPath, jobToken } = this.#options;
    if (path === "unix") return this.#listener.listenUnix(socketPath);
    if (path === "tcp") return this.#listener.listenTcp(host);
    const key = this.#options.isEncrypted ? await createOwnCertificate() : undefined;
    this.#certificate = key?.certificate ?? "";
    const node = { role: "worker", name: "task" } as const;
    const credentials = { clusterToken: Buffer.from(jobToken).toString("hex"), node };
    const { server, address } = await bindServer({ host, port: 0, credentials, key });
    server.addService(partSourceService, {
      Take: methodHandler(partSourceService, "Take", this.#take.bind(this)),
    });
    this.#grpc = server;
    return `grpc:${address}`;
  }

  async #answer({ shard, clock }: { shard: number; clock: number }): Promise<DataAnswer> {
    return { version: clock, ...this.#find(shard, clock) };
  }

  async #take({ id, clock }: TakePart__Output, { call }: CallContext<TakeCall>): Promise<void> {
    if (id?.attempt !== this.#options.attempt) {
      const message = `attempt ${id?.attempt} asks attempt ${this.#options.attempt} for a part`;
      throw new AppError("precondition_failed", message);
    }
    const { bytes, pieces } = this.#find(id.shard, clock);
    await writeAll(call, parameterChunks(clock, bytes, pieces));
  }

  #find(shard: number, clock: number): EncodedPart {
    const part = this.#clock === clock ? this.#parts.get(shard) : undefined;
    if (part) return part;
    throw new AppError(
      "not_found",
      `this worker has no part ${clock} for shard ${shard}: its latest push is ${this.#clock}`,
    );
  }
}
