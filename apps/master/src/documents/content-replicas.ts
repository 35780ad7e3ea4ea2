import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { ClientDuplexStream } from "@grpc/grpc-js";
import { AppError, toAppError } from "@heddle/base/errors";
import type { ContentChunk } from "@heddle/contracts/generated/heddle/v1/ContentChunk";
import { MAX_DOCUMENT_BYTES } from "@heddle/control/documents/records";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { getContentMethod, missingContentsMethod, putContentMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import { type BlobStore, digestOf } from "@heddle/storage/blob-store";
import type { GroupMember } from "../control-plane/control-group.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { MasterPeers } from "../control-plane/master-peers.ts";

const CHUNK_BYTES = 256 * 1024;
/** For one content to or from one master, with what its bytes take on a slow disk or network. */
const DEADLINE_MS = 10_000;
const BYTES_PER_MS = 4_096;
/**
 * How long contents may be under way when `missing` is asked: two steps of the upkeep, which
 * fetches them.
 */
const ARRIVAL_MS = 5_000;
const ARRIVAL_STEP_MS = 50;
/** Contents that this master sends and receives at a time; beyond them calls are refused. */
const MAX_BYTES_UNDER_WAY = 512 * 2 ** 20;

export interface ContentReplicasOptions {
  readonly store: BlobStore;
  readonly control: Pick<ControlPlane, "group" | "documents">;
  readonly credentials: NodeCredentials;
  readonly log: Log;
}

/** The contents of documents on the disks of all masters. */
export class ContentReplicas {
  readonly #options: ContentReplicasOptions;
  readonly #peers: MasterPeers;
  #bytesUnderWay = 0;
  /** Contents that this master fetched because its own copy was missing or damaged. */
  healed = 0;
  /** Own copies that did not match their checksum. */
  damaged = 0;

  constructor(options: ContentReplicasOptions) {
    this.#options = options;
    this.#peers = new MasterPeers(options.control, options.credentials);
  }

  /**
   * Resolves with the digest when the content is on this disk and those of a majority of the
   * voters. The other masters get it after that, or fetch it.
   */
  async put(content: Uint8Array): Promise<string> {
    const release = this.reserve(content.byteLength);
    const { store, control } = this.#options;
    const digest = digestOf(content);
    const own = store.put(content);
    const { id, members = [] } = control.group?.status() ?? {};
    const sends = members
      .filter((member) => member.id !== id)
      .map((member) => ({ member, done: this.#send(member.address, digest, content) }));
    const voters = members.filter(({ votes }) => votes);
    const votes = sends.filter(({ member }) => member.votes).map(({ done }) => done);
    if (voters.some((member) => member.id === id)) votes.push(own.then(() => undefined));
    void Promise.allSettled([own, ...sends.map(({ done }) => done)]).then(release);
    await Promise.all([own, storedBy(Math.floor(voters.length / 2) + 1, votes, voters.length)]);
    return digest;
  }

  /** The content, from this disk or else another master's. Throws `unavailable` where none has it. */
  async get(digest: string): Promise<Uint8Array> {
    const own = await this.#intact(digest, (store) => store.get(digest));
    return own ?? this.heal(digest);
  }

  /** Verifies the copy on this disk, and replaces it by another master's where it is damaged. */
  async verify(digest: string): Promise<{ readonly byteLength: number }> {
    if (!this.#options.store.has(digest)) return { byteLength: 0 };
    const own = await this.#intact(digest, (store) => store.verify(digest));
    return own ?? this.heal(digest);
  }

  async #intact<T>(digest: string, read: (store: BlobStore) => Promise<T>) {
    const { store, log } = this.#options;
    try {
      return await read(store);
    } catch (error) {
      this.damaged++;
      log.error({ digest, err: toAppError(error).message }, "the content of a document is damaged");
      return undefined;
    }
  }

  /** Fetches the content from another master and stores it here. */
  async heal(digest: string): Promise<Uint8Array> {
    const { control, store } = this.#options;
    const { id, members = [] } = control.group?.status() ?? {};
    const faults: string[] = [];
    for (const { address, name } of members.filter((member) => member.id !== id)) {
      try {
        const content = await this.#fetch(address, digest);
        await store.put(content);
        this.healed++;
        return content;
      } catch (error) {
        faults.push(`${name}: ${toAppError(error).message}`);
      }
    }
    const asked = faults.length > 0 ? `; ${faults.join("; ")}` : "";
    const message = `the content of the document, ${digest}, is on no master that answers${asked}`;
    throw new AppError("unavailable", message);
  }

  /**
   * How many contents of the records committed before the call are not on this disk. Those that it
   * lacks have time to arrive: while documents are stored, some are always under way.
   */
  async missing(): Promise<number> {
    const { control, store } = this.#options;
    const isLacked = (digest: string) =>
      control.documents.digests.has(digest) && !store.has(digest);
    await control.group?.readBarrier();
    let lacked = [...control.documents.digests.keys()].filter(isLacked);
    const end = performance.now() + ARRIVAL_MS;
    while (lacked.length > 0 && performance.now() < end) {
      await delay(ARRIVAL_STEP_MS);
      lacked = lacked.filter(isLacked);
    }
    return lacked.length;
  }

  /** The number of contents that a member lacks. Rejects where it does not answer. */
  async missingOn({ id, address }: GroupMember): Promise<number> {
    if (id === this.#options.control.group?.status().id) return this.missing();
    const peer = this.#peers.get(address);
    const { count } = await peer.unary(missingContentsMethod, {}, { deadlineMs: DEADLINE_MS });
    return Number(count);
  }

  /** Counts bytes that this master holds for a transfer; returns the function that ends it. */
  reserve(bytes: number): () => void {
    if (this.#bytesUnderWay > 0 && this.#bytesUnderWay + bytes > MAX_BYTES_UNDER_WAY) {
      const message = `this master moves ${this.#bytesUnderWay} bytes of documents already`;
      throw new AppError("overloaded", message);
    }
    this.#bytesUnderWay += bytes;
    return () => {
      this.#bytesUnderWay -= bytes;
    };
  }

  close(): void {
    this.#peers.close();
  }

  async #send(address: string, digest: string, content: Uint8Array): Promise<void> {
    const stream = this.#peers.get(address).duplex(putContentMethod);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const signal = deadline(content.byteLength);
    signal.addEventListener("abort", () => stream.cancel(), { once: true });
    stream.on("data", () => resolve());
    stream.on("error", (error) => reject(fromStatus(error, address)));
    stream.on("end", () => reject(new AppError("unavailable", `${address} did not confirm it`)));
    writeChunks(stream, chunksOf(content, digest)).catch(reject);
    await promise;
  }

  async #fetch(address: string, digest: string): Promise<Uint8Array> {
    const parts: Buffer[] = [];
    let bytes = 0;
    const signal = deadline(MAX_DOCUMENT_BYTES);
    for await (const { data } of this.#peers
      .get(address)
      .serverStream(getContentMethod, { digest }, signal)) {
      bytes += data.byteLength;
      if (bytes > MAX_DOCUMENT_BYTES) break;
      parts.push(data);
    }
    const content = Buffer.concat(parts);
    if (digestOf(content) === digest) return content;
    throw new AppError("server_error", `${address} sent something else than ${digest}`);
  }
}

async function writeChunks(
  stream: ClientDuplexStream<ContentChunk, unknown>,
  chunks: Iterable<ContentChunk>,
): Promise<void> {
  for (const chunk of chunks) if (!stream.write(chunk)) await once(stream, "drain");
  stream.end();
}

/** The chunks of a content; the first one names it. */
export function* chunksOf(content: Uint8Array, digest: string): Generator<ContentChunk, void> {
  yield { digest, data: content.subarray(0, CHUNK_BYTES) };
  for (let at = CHUNK_BYTES; at < content.byteLength; at += CHUNK_BYTES) {
    yield { data: content.subarray(at, at + CHUNK_BYTES) };
  }
}

/** Resolves when enough of the voters have stored it; rejects when all have ended without. */
async function storedBy(
  needed: number,
  stores: readonly Promise<void>[],
  voters: number,
): Promise<void> {
  if (voters === 0) return;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let stored = 0;
  const faults: string[] = [];
  const count = (store: Promise<void>) =>
    store.then(
      () => ++stored >= needed && resolve(),
      (error: unknown) => faults.push(toAppError(error).message),
    );
  void Promise.all(stores.map(count)).then(() => {
    const message = `only ${stored} of ${voters} masters could store the document, and ${needed} must: ${faults.join("; ")}`;
    reject(new AppError("unavailable", message));
  });
  await promise;
}

function deadline(bytes: number): AbortSignal {
  return AbortSignal.timeout(DEADLINE_MS + Math.ceil(bytes / BYTES_PER_MS));
}
