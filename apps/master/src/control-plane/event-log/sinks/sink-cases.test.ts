// holds: sinks-kit

import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import { NatsProcess } from "../../../../test/sinks/nats-process.ts";
import { sinkCases } from "../../../../test/sinks/sink-kit.ts";
import type { LogSink } from "./log-sink.ts";
import { openSinks } from "./open-sinks.ts";

const CLUSTER = "c1";
const ORIGIN = `heddle/events/${CLUSTER}`;
const root = mkdtempSync(join(tmpdir(), "heddle-sinks-"));
let server: S3Server;
let places = 0;

beforeAll(async () => {
  server = await startS3Server();
});
afterAll(async () => {
  await server.close();
  rmSync(root, { recursive: true });
});

const sinkAt = (url: string, env?: NodeJS.ProcessEnv) =>
  openSinks([url], ORIGIN, env)[0] as LogSink;
const linesOf = (paths: readonly string[]) =>
  paths.flatMap((path) => readFileSync(path, "utf8").split("\n").slice(0, -1));

sinkCases({
  title: "file sink",
  why: undefined,
  place() {
    const directory = join(root, `files-${places++}`);
    const blocked = join(root, `blocked-${places++}`);
    writeFileSync(blocked, "no directory");
    return {
      open: () => sinkAt(`file://${directory}`),
      refused: () => sinkAt(`file://${blocked}/below`),
      secret: "no directory",
      stored: async () => linesOf(globSync(`${directory}/*.jsonl`).sort()),
    };
  },
});

sinkCases({
  title: "S3 sink",
  why: undefined,
  place() {
    const prefix = `events-${places++}`;
    const url = `s3://heddle/${prefix}`;
    return {
      open: () => sinkAt(url, server.env),
      refused: () => sinkAt(url, { ...server.env, AWS_SECRET_ACCESS_KEY: "top-secret" }),
      secret: "top-secret",
      stored: async () =>
        linesOf(globSync(`${server.directory}/${prefix}/${CLUSTER}/*_object`).sort()),
    };
  },
});

sinkCases({
  title: "NATS sink",
  why: NatsProcess.problem(),
  async place() {
    const nats = new NatsProcess(await freePort(), join(root, `nats-${places++}`));
    onTestFinished(() => nats.end("SIGKILL"));
    await nats.start();
    const stream = { name: "AUDIT", subjects: ["heddle.events"], storage: "file" };
    await nats.ask("STREAM.CREATE.AUDIT", stream);
    const url = `nats://127.0.0.1:${nats.port}/heddle.events`;
    const env = { NATS_USER: "u", NATS_PASSWORD: "p" };
    return {
      open: () => sinkAt(url, env),
      refused: () => sinkAt(url, { ...env, NATS_PASSWORD: "top-secret" }),
      secret: "top-secret",
      stored: () => nats.stored("AUDIT"),
    };
  },
});
