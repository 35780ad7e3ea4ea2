import { readFile } from "node:fs/promises";
import { isAbsolute } from "node:path";
import { AppError } from "@heddle/base/errors";
import { readBoundedText } from "@heddle/base/flag-file";
import type { UpstreamAccess } from "@heddle/engines/upstream/start-upstream";
import { checkedOrigin, UpstreamPolicy } from "@heddle/engines/upstream/upstream-policy";
import { z } from "zod";

const MAX_FILE_BYTES = 1_048_576;
const MAX_KEY_BYTES = 8_192;

const origins = z.array(z.string().max(512)).max(256);
const path = z.string().max(4096).refine(isAbsolute, "expected an absolute path");
const name = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/);

/** The file of --upstreams: what the worker may ask, and what it may start. */
const upstreamFile = z.strictObject({
  origins: origins.default([]),
  /** A key goes only to its own origins. */
  keys: z.record(name, z.strictObject({ file: path, origins: origins.min(1) })).default({}),
  commands: z
    .record(
      name,
      z.strictObject({
        argv: z.tuple([path], z.string().max(8192)).refine(({ length }) => length <= 256),
        env: z.record(z.string().max(256), z.string().max(8192)).default({}),
        path: z.string().startsWith("/").max(256).default("/v1"),
        start_timeout_s: z.number().min(1).max(86_400).default(600),
      }),
    )
    .default({}),
});

type UpstreamFile = z.output<typeof upstreamFile>;

/** What a worker's administrator permits, and the files with keys. */
export interface UpstreamConfig extends UpstreamAccess {
  readonly keyFiles: readonly string[];
}

/** Throws `invalid_value` for an invalid file. Without a file nothing is permitted. */
export function readUpstreams(file: string | undefined): UpstreamConfig {
  const config = file === undefined ? upstreamFile.parse({}) : parsedFile(file);
  try {
    return {
      policy: new UpstreamPolicy(config.origins),
      keyFor: keyReader(config.keys),
      commands: commandsOf(config),
      keyFiles: Object.values(config.keys).map((key) => key.file),
    };
  } catch (error) {
    throw invalid(file, (error as Error).message);
  }
}

function parsedFile(file: string): UpstreamFile {
  try {
    const text = readBoundedText(file);
    if (text.length > MAX_FILE_BYTES) throw new Error(`it has more than ${MAX_FILE_BYTES} bytes`);
    return upstreamFile.parse(JSON.parse(text));
  } catch (error) {
    const isShape = error instanceof z.ZodError;
    throw invalid(file, isShape ? z.prettifyError(error) : (error as Error).message);
  }
}

function commandsOf({ commands }: UpstreamFile): UpstreamAccess["commands"] {
  return new Map(
    Object.entries(commands).map(([key, { start_timeout_s: seconds, ...command }]) => [
      key,
      { ...command, startTimeoutMs: seconds * 1000 },
    ]),
  );
}

/** Keys are read when an engine starts, so that a replaced file is seen. */
function keyReader(keys: UpstreamFile["keys"]): UpstreamAccess["keyFor"] {
  const known = new Map(
    Object.entries(keys).map(([key, { file, origins: own }]) => {
      return [key, { file, origins: new Set(own.map(checkedOrigin)) }];
    }),
  );
  return async (key, origin) => {
    const found = known.get(key);
    if (!found?.origins.has(origin)) {
      const message = `this worker has no key ${key} for ${origin}: its administrator has to configure it (--upstreams)`;
      throw new AppError("invalid_value", message, { param: "engine.api_key" });
    }
    const text = await readFile(found.file, "utf8").catch((cause: unknown) => {
      throw new AppError("unavailable", `the worker cannot read its key ${key}`, { cause });
    });
    const secret = text.trim();
    if (/^[\x21-\x7e]+$/.test(secret) && secret.length <= MAX_KEY_BYTES) return secret;
    throw new AppError("unavailable", `the file of the worker's key ${key} holds no key`);
  };
}

function invalid(file: string | undefined, why: string): AppError {
  return new AppError("invalid_value", `--upstreams ${file}: ${why}`);
}
