import type { ServerWritableStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { ArtifactChunk } from "@heddle/contracts/generated/heddle/v1/ArtifactChunk";
import type { ArtifactRange__Output } from "@heddle/contracts/generated/heddle/v1/ArtifactRange";
import { callerOf } from "@heddle/rpc/credentials";
import { writeAll } from "@heddle/rpc/write-all";
import { checkedId } from "../records/task-plan.ts";
import type { ArtifactStore } from "./artifact-store.ts";
import type { OpenedFile } from "./replica.ts";

type ReadStream = ServerWritableStream<ArtifactRange__Output, ArtifactChunk>;

/** Answers a read of an artifact of this worker's tasks; masters alone may read. */
export async function sendArtifact(stream: ReadStream, store: ArtifactStore): Promise<void> {
  // Other workers must ask the masters, which check permissions.
  if (callerOf(stream).role !== "master") {
    throw new AppError("permission_denied", "this is for masters");
  }
  await writeAll(stream, chunksOf(store, stream.request));
}

async function* chunksOf(
  store: ArtifactStore,
  { task, name, offset, maxBytes, digests }: ArtifactRange__Output,
): AsyncGenerator<ArtifactChunk, void> {
  const id = checkedId(task);
  const found = digests ? store.openDigests(id, name) : store.open(id, name);
  for await (const data of chunksFrom(await found, offset, maxBytes)) yield { data };
}

/** The bytes of one artifact from an offset on; `maxBytes` 0 is to its end. */
export async function* readArtifact(
  store: ArtifactStore,
  ...[id, name, offset, maxBytes]: [
    id: Parameters<ArtifactStore["open"]>[0],
    name: string,
    offset: number,
    maxBytes: number,
  ]
): AsyncGenerator<Buffer, void> {
  yield* chunksFrom(await store.open(id, name), offset, maxBytes);
}

async function* chunksFrom(
  file: OpenedFile,
  offset: number,
  maxBytes: number,
): AsyncGenerator<Buffer, void> {
  try {
    const end = maxBytes === 0 ? file.bytes : Math.min(file.bytes, offset + maxBytes);
    yield* file.read(offset, end);
  } finally {
    await file.close();
  }
}
