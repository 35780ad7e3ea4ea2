import {
  type ChannelOptions,
  Client,
  type ClientDuplexStream,
  type ClientReadableStream,
  type Metadata,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { NodeRole } from "@heddle/pki/node-name";
import type { TlsIdentity, TlsMaterial } from "@heddle/pki/tls-identity";
import { clientChannelOptions } from "./channel-options.ts";
import { type CallerCredentials, callMetadata, channelOf, isEncrypted } from "./credentials.ts";
import type { RpcMethod } from "./proto.ts";
import { fromStatus } from "./status.ts";

/**
 * A connection to another node; every call carries this node's credentials. After a renewal of its
 * certificate new calls use a new connection, and open ones continue on theirs.
 */
export class Peer {
  readonly address: string;
  readonly #newClient: () => Client;
  readonly #tls: TlsIdentity | undefined;
  readonly #metadata: Metadata;
  #client: Client;
  #certificate: TlsMaterial | undefined;

  /**
   * `role` is the required role of the other side, with TLS; `more` are options of the connection.
   */
  constructor(
    address: string,
    own: CallerCredentials,
    role: NodeRole = "master",
    more: ChannelOptions = {},
  ) {
    this.address = address;
    // Nodes are identified by their certificates' URIs, not by host name or address.
    const named = isEncrypted(own) ? { "grpc.ssl_target_name_override": "heddle.node" } : {};
    const options = { ...clientChannelOptions, ...more, ...named };
    this.#newClient = () => new Client(address, channelOf(own, role), options);
    this.#tls = "tls" in own ? own.tls : undefined;
    this.#client = this.#newClient();
    this.#certificate = this.#tls?.material;
    this.#metadata = callMetadata(own);
  }

  /** One request, one reply. Rejects with the peer's AppError or the one that fits the status. */
  unary<Req, ReqOut, Res, ResOut>(
    method: RpcMethod<Req, ReqOut, Res, ResOut>,
    request: Req,
    options: { readonly deadlineMs: number; readonly signal?: AbortSignal | undefined },
  ): Promise<ResOut> {
    const { promise, resolve, reject } = Promise.withResolvers<ResOut>();
    if (options.signal?.aborted) return Promise.reject(abandoned(method.path));
    const call = this.#present().makeUnaryRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      this.#metadata,
      { deadline: Date.now() + options.deadlineMs },
      (error, reply) => {
        options.signal?.removeEventListener("abort", onAbort);
        if (error || reply === undefined) reject(fromStatus(error, this.address));
        else resolve(reply);
      },
    );
    const onAbort = () => call.cancel();
    options.signal?.addEventListener("abort", onAbort, { once: true });
    return promise;
  }

  /** A stream of replies, ended by the signal or by leaving the loop; it has no deadline. */
  async *serverStream<Req, ReqOut, Res, ResOut>(
    method: RpcMethod<Req, ReqOut, Res, ResOut>,
    request: Req,
    signal: AbortSignal,
  ): AsyncGenerator<ResOut, void, undefined> {
    if (signal.aborted) throw abandoned(method.path);
    const call: ClientReadableStream<ResOut> = this.#present().makeServerStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      this.#metadata,
      {},
    );
    const onAbort = () => call.cancel();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      for await (const reply of call) yield reply as ResOut;
    } catch (error) {
      throw fromStatus(error, this.address);
    } finally {
      signal.removeEventListener("abort", onAbort);
      call.cancel();
    }
  }

  /** A long-lived bidirectional stream; only the keepalive bounds its silence. */
  duplex<Req, ReqOut, Res, ResOut>(
    method: RpcMethod<Req, ReqOut, Res, ResOut>,
  ): ClientDuplexStream<Req, ResOut> {
    return this.#present().makeBidiStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      this.#metadata,
      {},
    );
  }

  close(): void {
    this.#client.close();
  }

  /** Servers refuse new calls on a connection whose certificate has expired. */
  #present(): Client {
    const material = this.#tls?.material;
    if (material === this.#certificate) return this.#client;
    this.#certificate = material;
    this.#client.close();
    this.#client = this.#newClient();
    return this.#client;
  }
}

function abandoned(path: string): AppError {
  return new AppError("cancelled", `the call ${path} was given up before it was sent`);
}
