// holds: artifacts-kit

import { globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { afterAll, beforeAll } from "vitest";
import { replicaCases } from "../../test/replica-kit.ts";
import { openReplica } from "./open-replica.ts";

const root = mkdtempSync(join(tmpdir(), "heddle-replicas-"));
let server: S3Server;
let places = 0;

beforeAll(async () => {
  server = await startS3Server();
});
afterAll(async () => {
  await server.close();
  rmSync(root, { recursive: true });
});

replicaCases({
  title: "directory",
  place() {
    const directory = join(root, `place-${places++}`);
    return {
      open: (maxAgeMs) => openReplica(directory, maxAgeMs),
      stored: () =>
        globSync("**/*", { cwd: directory, withFileTypes: true })
          .filter((entry) => entry.isFile())
          .map(({ name }) => name),
    };
  },
});

replicaCases({
  title: "S3",
  place() {
    const prefix = `a/place-${places++}`;
    return {
      open: (maxAgeMs) => openReplica(`s3://heddle/${prefix}`, maxAgeMs, server.env),
      stored: () => globSync("**/*_object", { cwd: join(server.directory, prefix) }),
    };
  },
});
