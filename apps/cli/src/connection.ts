import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { Heddle } from "@heddle/client/heddle";
import { type ClusterContext, ContextStore } from "./auth/context-store.ts";
import { TokenStore } from "./auth/token-store.ts";

/** The cluster's address and the key. */
export interface Connection {
  /** For example `http://127.0.0.1:8080`, without a trailing slash. */
  readonly endpoint: string;
  readonly apiKey: string | undefined;
  /** Gives the access token of a sign-in, where no key is given. */
  readonly login?: (() => Promise<string>) | undefined;
  readonly endpointSource: ConnectionSource;
  /** Further masters of the cluster, tried if the first is unreachable. */
  readonly others?: readonly string[] | undefined;
  readonly project?: string | undefined;
  /** The authority's file of the context whose cluster it is. */
  readonly ca?: string | undefined;
}

export type ConnectionSource =
  | "--endpoint"
  | "HEDDLE_ENDPOINT"
  | `context ${string}`
  | "credentials file"
  | "default";

interface ConnectionFlags {
  readonly endpoint?: string | undefined;
  readonly apiKey?: string | undefined;
}

export const DEFAULT_ENDPOINT = "http://127.0.0.1:8080";

/**
 * A flag overrides the environment, which overrides the context, and that the credentials file of
 * `heddle up`; a sign-in of `heddle auth login` overrides the file's key. The file's
 * key is sent to the file's endpoints only: a mistyped `--endpoint` must not receive an
 * administrator's key.
 */
export function findConnection(
  flags: ConnectionFlags,
  env: NodeJS.ProcessEnv = process.env,
): Connection {
  const directory = dataDirectory(undefined, env);
  const file = readCredentials(directory);
  const named = namedEndpoint(flags, env);
  const context = named ? undefined : new ContextStore(directory).current;
  const [given, endpointSource]: [string, ConnectionSource] =
    named ??
    (context
      ? [context.endpoint, `context ${context.name}`]
      : file
        ? [file.endpoints[0], "credentials file"]
        : [DEFAULT_ENDPOINT, "default"]);
  const asked = endpointOrigin(given, endpointSource);
  const own = file?.endpoints.map((each) => endpointOrigin(each, "credentials file"));
  const isOurs = own?.includes(asked) || own?.includes(numbered(asked));
  // `localhost` may resolve to anything, so the key goes to the file's own address.
  const endpoint = isOurs && !own?.includes(asked) ? numbered(asked) : asked;
  const key = findKey(flags, env, context);
  const login = key === undefined ? loginOf(endpoint, env) : undefined;
  const apiKey = key ?? (isOurs && !login ? file?.apiKey : undefined);
  const others = file?.endpoints.slice(1).map((other) => endpointOrigin(other, endpointSource));
  // A named endpoint is used alone.
  const isOfFile = endpointSource === "credentials file" && others && others.length > 0;
  return {
    endpoint,
    apiKey,
    login,
    endpointSource,
    project: env["HEDDLE_PROJECT"] || context?.project,
    ca: context?.ca,
    ...(isOfFile ? { others } : {}),
  };
}

function namedEndpoint(
  flags: ConnectionFlags,
  env: NodeJS.ProcessEnv,
): [string, ConnectionSource] | undefined {
  if (flags.endpoint) return [flags.endpoint, "--endpoint"];
  const { HEDDLE_ENDPOINT: variable } = env;
  return variable ? [variable, "HEDDLE_ENDPOINT"] : undefined;
}

/** What gives the access token of a sign-in to that cluster; undefined without one. */
function loginOf(endpoint: string, env: NodeJS.ProcessEnv): Connection["login"] {
  const store = new TokenStore(dataDirectory(undefined, env));
  if (!store.get(endpoint)) return undefined;
  return async () => (await import("./auth/fresh-token.ts")).freshToken(store, endpoint);
}

/** A client of that cluster, whose errors name the source of the address. */
export function clientOf(connection: Connection, maxRetries?: number): Heddle {
  const { endpoint, others = [], apiKey, login, endpointSource, project } = connection;
  return new Heddle({
    endpoint: [endpoint, ...others],
    auth_token: apiKey,
    auth: login,
    project,
    maxRetries,
    retryRefused: false,
    hints: { endpointSource, noKey: `No API key was sent${whyNoKey(connection)}.` },
  });
}

function whyNoKey({ endpoint, endpointSource }: Connection): string {
  if (endpointSource !== "--endpoint" && endpointSource !== "HEDDLE_ENDPOINT") return "";
  return `: the key of \`heddle up\` is sent to its own cluster only, and ${endpoint} (from ${endpointSource}) is another`;
}

/** The given key. An error does not repeat one that no header can carry. */
function findKey(
  flags: ConnectionFlags,
  env: NodeJS.ProcessEnv,
  context: ClusterContext | undefined,
): string | undefined {
  const variable = env["HEDDLE_API_KEY"]?.trim();
  const [key, source] = flags.apiKey
    ? [flags.apiKey.trim(), "--api-key"]
    : variable
      ? [variable, "HEDDLE_API_KEY"]
      : [keyOfContext(context), `the context ${context?.name}`];
  if (key === undefined || /^[\x21-\x7e]+$/.test(key)) return key;
  const text = `The API key (from ${source}) has characters that are invalid in a key, such as a line break or a space. Give the key alone.`;
  throw new AppError("invalid_api_key", text);
}

function keyOfContext(context: ClusterContext | undefined): string | undefined {
  if (context?.apiKeyFile === undefined) return undefined;
  const source = `the API key of the context ${context.name}`;
  return readFlagFile(source, context.apiKeyFile, "a file with the key alone").trim();
}

/** The address with `localhost` replaced by the number on which local clusters listen. */
function numbered(origin: string): string {
  return origin.replace(/^(https?:\/\/)localhost(?=[:/]|$)/, "$1127.0.0.1");
}

/** The endpoint's origin; a path of `/api/v1`, which SDKs need, is removed. */
export function endpointOrigin(endpoint: string, source: ConnectionSource): string {
  const url = URL.parse(endpoint);
  if (url && /^https?:$/.test(url.protocol)) {
    return url.origin + url.pathname.replace(/\/(api\/v1\/?)?$/, "");
  }
  const text = `"${endpoint}" (from ${source}) is not a valid endpoint. Give one like ${DEFAULT_ENDPOINT}.`;
  throw new AppError("invalid_value", text);
}

/** The directory of the local cluster's files: the flag, HEDDLE_DATA, or ~/.heddle. */
export function dataDirectory(flag: string | undefined, env = process.env): string {
  return resolve(flag || env["HEDDLE_DATA"] || join(homedir(), ".heddle"));
}

export interface Credentials {
  /** One for each master; the first is the default. */
  readonly endpoints: readonly [string, ...string[]];
  readonly apiKey: string;
}

export function credentialsFile(dataDir: string): string {
  return join(dataDir, "credentials.json");
}

/** The credentials that `heddle up` wrote; undefined if there is no such file. */
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
