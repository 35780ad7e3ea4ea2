import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The used part of @20minutes/s3rver, which has no types. */
interface S3rver {
  run(): Promise<AddressInfo>;
  close(): Promise<void>;
}
type S3rverClass = new (options: Readonly<Record<string, unknown>>) => S3rver;

/** An S3 server on loopback, over HTTP, that checks signatures; with one bucket, `heddle`. */
export interface S3Server {
  /** The environment of a client. */
  readonly env: NodeJS.ProcessEnv;
  /** The directory of the bucket's objects. */
  readonly directory: string;
  close(): Promise<void>;
}

export async function startS3Server(): Promise<S3Server> {
  const directory = mkdtempSync(join(tmpdir(), "heddle-s3-"));
  const Server = createRequire(import.meta.url)("@20minutes/s3rver") as S3rverClass;
  const server = new Server({
    port: 0,
    address: "127.0.0.1",
    silent: true,
    directory,
    configureBuckets: [{ name: "heddle" }],
  });
  const { port } = await server.run();
  return {
    env: {
      AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${port}`,
      AWS_ACCESS_KEY_ID: "S3RVER",
      AWS_SECRET_ACCESS_KEY: "S3RVER",
    },
    directory: join(directory, "heddle"),
    async close() {
      await server.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
