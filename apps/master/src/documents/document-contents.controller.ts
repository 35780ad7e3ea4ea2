import type { ServerDuplexStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type {
  ContentChunk,
  ContentChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ContentChunk";
import type { ContentName__Output } from "@heddle/contracts/generated/heddle/v1/ContentName";
import type { ContentStored } from "@heddle/contracts/generated/heddle/v1/ContentStored";
import type { MissingContents } from "@heddle/contracts/generated/heddle/v1/MissingContents";
import { MAX_DOCUMENT_BYTES } from "@heddle/control/documents/records";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { documentContentsService } from "@heddle/rpc/proto";
import { writeAll } from "@heddle/rpc/write-all";
import { BlobStore, digestOf } from "@heddle/storage/blob-store";
import { Controller, Inject } from "@nestjs/common";
import { ContentReplicas, chunksOf } from "./content-replicas.ts";

type PutStream = ServerDuplexStream<ContentChunk__Output, ContentStored>;

/** DocumentContents of proto/documents.proto: what other masters put here and get from here. */
@Controller()
export class DocumentContentsController {
  readonly #store: BlobStore;
  readonly #replicas: ContentReplicas;

  constructor(
    @Inject(BlobStore) store: BlobStore,
    @Inject(ContentReplicas) replicas: ContentReplicas,
  ) {
    this.#store = store;
    this.#replicas = replicas;
  }

  @GrpcCall(documentContentsService, "Put")
  async put(stream: PutStream): Promise<void> {
    const releases: (() => void)[] = [];
    try {
      const parts: Buffer[] = [];
      let [digest, bytes] = ["", 0];
      const chunks: AsyncIterable<ContentChunk__Output> = stream.iterator({
        destroyOnReturn: false,
      });
      for await (const chunk of chunks) {
        digest ||= chunk.digest;
        bytes += chunk.data.byteLength;
        if (bytes > MAX_DOCUMENT_BYTES) {
          const message = `a document has at most ${MAX_DOCUMENT_BYTES} bytes`;
          throw new AppError("request_too_large", message);
        }
        releases.push(this.#replicas.reserve(chunk.data.byteLength));
        parts.push(chunk.data);
      }
      const content = Buffer.concat(parts);
      if (digestOf(content) !== digest) {
        throw new AppError("invalid_value", `the content has another digest than ${digest}`);
      }
      await this.#store.put(content);
    } finally {
      for (const release of releases) release();
    }
    stream.write({});
    stream.end();
  }

  @GrpcCall(documentContentsService, "Get")
  async get(
    { digest }: ContentName__Output,
    { call }: StreamContext<ContentName__Output, ContentChunk>,
  ): Promise<void> {
    const content = await this.#store.get(digest);
    if (!content) throw new AppError("not_found", "this master does not have that content");
    const release = this.#replicas.reserve(content.byteLength);
    try {
      await writeAll(call, oneByOne(chunksOf(content, digest)));
    } finally {
      release();
    }
  }

  @GrpcCall(documentContentsService, "Missing")
  async missing(): Promise<MissingContents> {
    return { count: await this.#replicas.missing() };
  }
}

async function* oneByOne<Item>(items: Iterable<Item>): AsyncGenerator<Item, void> {
  yield* items;
}
