import type { S3Client } from "@heddle/storage/s3/s3-client";
import type { LogSink, SinkBatch } from "./log-sink.ts";

/** Events gather into objects of as many as there are, or the most that one batch has. */
const GATHER_MS = 10_000;

/** Events as lines of JSON in objects, which are named by their first event. */
export class S3Sink implements LogSink {
  readonly name: string;
  readonly gatherMs: number;
  readonly #client: Pick<S3Client, "put">;
  readonly #cluster: string;

  constructor(name: string, client: Pick<S3Client, "put">, cluster: string, gatherMs = GATHER_MS) {
    this.name = name;
    this.#client = client;
    this.#cluster = cluster;
    this.gatherMs = gatherMs;
  }

  async write({ first, texts }: SinkBatch): Promise<void> {
    const bytes = Buffer.from(texts.map((text) => `${text}\n`).join(""));
    const key = `${this.#cluster}/${String(first).padStart(16, "0")}.jsonl`;
    await this.#client.put(key, bytes.byteLength, async (offset, count) =>
      bytes.subarray(offset, offset + count),
    );
  }

  async close(): Promise<void> {}
}
