import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import { Heddle } from "@heddle/client/heddle";

/** Where the cluster is, and the key to show it. */
export interface Connection {
  /** As `http://127.0.0.1:8080`, without a slash at the end. */
  readonly endpoint: string;
  readonly apiKey: string | undefined;
  readonly endpointSource: ConnectionSource;
  /** Further masters of the same cluster, to be asked where that one is not reached. */
  readonly others?: readonly string[] | undefined;
}

export type ConnectionSource = "--endpoint" | "HEDDLE_ENDPOINT" | "credentials file" | "default";

interface ConnectionFlags {
  readonly endpoint?: string | undefined;
  readonly apiKey?: string | undefined;
}

const DEFAULT_ENDPOINT = "http://127.0.0.1:8080";

/**
 * A flag beats the environment, which beats the credentials file that `heddle up` keeps. The file's
 * key goes only to the file's endpoints: an administrator's key must not reach another address
 * because someone typed `--endpoint`.
 */
export function findConnection(
  flags: ConnectionFlags,
  env: NodeJS.ProcessEnv = process.env,
): Connection {
  const file = readCredentials(dataDirectory(undefined, env));
  const [given, endpointSource]: [string, ConnectionSource] = flags.endpoint
    ? [flags.endpoint, "--endpoint"]
    : env["HEDDLE_ENDPOINT"]
      ? [env["HEDDLE_ENDPOINT"], "HEDDLE_ENDPOINT"]
      : file
        ? [file.endpoints[0], "credentials file"]
        : [DEFAULT_ENDPOINT, "default"];
  const asked = originOf(given, endpointSource);
  const own = file?.endpoints.map((each) => originOf(each, "credentials file"));
  const isOurs = own?.includes(asked) || own?.includes(numbered(asked));
  // What `localhost` means is not ours to say: the key goes to the address that the file has.
  const endpoint = isOurs && !own?.includes(asked) ? numbered(asked) : asked;
  const apiKey = findKey(flags, env) ?? (isOurs ? file?.apiKey : undefined);
  const others = file?.endpoints.slice(1).map((other) => originOf(other, endpointSource));
  // An endpoint that somebody names is the one that is meant.
  const isOfFile = endpointSource === "credentials file" && others && others.length > 0;
  return { endpoint, apiKey, endpointSource, ...(isOfFile ? { others } : {}) };
}

/** A client of that cluster, whose errors say where the address is from. */
export function clientOf(connection: Connection, maxRetries?: number): Heddle {
  const { endpoint, others = [], apiKey, endpointSource } = connection;
  return new Heddle({
    endpoint: [endpoint, ...others],
    auth_token: apiKey,
    maxRetries,
    retryRefused: false,
    hints: { endpointSource, noKey: `No API key was sent${whyNoKey(connection)}.` },
  });
}

function whyNoKey({ endpoint, endpointSource }: Connection): string {
  if (endpointSource !== "--endpoint" && endpointSource !== "HEDDLE_ENDPOINT") return "";
  return `: the key that \`heddle up\` keeps is for its own cluster alone, and ${endpoint} (from ${endpointSource}) is another`;
}

/** The key that is given. One that no header can carry is not repeated in the error. */
function findKey(flags: ConnectionFlags, env: NodeJS.ProcessEnv): string | undefined {
  const [key, source] = flags.apiKey
    ? [flags.apiKey.trim(), "--api-key"]
    : [env["HEDDLE_API_KEY"]?.trim() || undefined, "HEDDLE_API_KEY"];
  if (key === undefined || /^[\x21-\x7e]+$/.test(key)) return key;
  const text = `The API key (from ${source}) has characters that no key has, as a line break or a space in it. Give the whole key and nothing else.`;
  throw new AppError("invalid_api_key", text);
}

/** The same address with `localhost` as the number that clusters of this machine listen on. */
function numbered(origin: string): string {
  return origin.replace(/^(https?:\/\/)localhost(?=[:/]|$)/, "$1127.0.0.1");
}

/** The endpoint's origin; a path of `/api/v1`, which SDKs want, is taken off. */
function originOf(endpoint: string, source: ConnectionSource): string {
  const url = URL.parse(endpoint);
  if (url && /^https?:$/.test(url.protocol)) {
    return url.origin + url.pathname.replace(/\/(api\/v1\/?)?$/, "");
  }
  const text = `"${endpoint}" (from ${source}) is no endpoint. Give one like ${DEFAULT_ENDPOINT}.`;
  throw new AppError("invalid_value", text);
}

/** The directory of the local cluster's files: the flag, HEDDLE_DATA, or ~/.heddle. */
export function dataDirectory(flag: string | undefined, env = process.env): string {
  return resolve(flag || env["HEDDLE_DATA"] || join(homedir(), ".heddle"));
}

export interface Credentials {
  /** One for each master; the first is the one that commands talk to by themselves. */
  readonly endpoints: readonly [string, ...string[]];
  readonly apiKey: string;
}

export function credentialsFile(dataDir: string): string {
  return join(dataDir, "credentials.json");
}

/** What `heddle up` wrote down; undefined where there is no such file. */
export function readCredentials(dataDir: string): Credentials | undefined {
  const file = credentialsFile(dataDir);
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new AppError("invalid_value", `Could not read ${file}: ${(error as Error).message}.`);
  }
  const parsed = parseObject(text);
  const { endpoint, endpoints = [], api_key: apiKey } = parsed ?? {};
  if (typeof endpoint === "string" && typeof apiKey === "string" && isTexts(endpoints)) {
    const others = endpoints.filter((other) => other !== endpoint);
    return { endpoints: [endpoint, ...others], apiKey };
  }
  throw new AppError(
    "invalid_value",
    `${file} is damaged: it must hold "endpoint" and "api_key". Delete it; heddle up makes a new one.`,
  );
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
