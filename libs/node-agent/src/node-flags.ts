import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { type ParseArgsOptionsConfig, parseArgs } from "node:util";
import { AppError } from "@heddle/base/errors";
import { readFlagFileIfThere } from "@heddle/base/flag-file";
import {
  isHostPort,
  isLoopback,
  MAX_PORT,
  splitHostPort,
} from "@heddle/base/network/network-address";
import { parseJoinToken } from "@heddle/pki/join-token";
import { readClusterToken } from "@heddle/rpc/credentials";

/** The common flags of every node but a master. */
export interface NodeFlags {
  readonly dataDirectory: string;
  readonly name: string | undefined;
  readonly grpcHost: string;
  readonly grpcPort: number;
  readonly advertise: string | undefined;
  readonly masters: readonly string[];
  /** Empty under TLS, where a certificate replaces it. */
  readonly clusterToken: string;
  readonly tls?: boolean | undefined;
  /** Whether nodes of other machines are reached without TLS. */
  readonly isExposed?: boolean | undefined;
  /** Under TLS, the token for the node's first certificate. */
  readonly joinToken?: string | undefined;
  /** Under TLS, the file with a key by which it joins whenever it has no valid certificate. */
  readonly enrollKeyFile?: string | undefined;
  /** Files and directories that hold secrets of this node, absolute. */
  readonly secretPaths?: readonly string[] | undefined;
}

const TOKEN_HELP = "--cluster-token-file FILE, the masters' token";
const nodeFlags = {
  data: { type: "string" },
  name: { type: "string" },
  "grpc-host": { type: "string", default: "127.0.0.1" },
  "grpc-port": { type: "string", default: "0" },
  advertise: { type: "string" },
  "metrics-host": { type: "string", default: "127.0.0.1" },
  "metrics-port": { type: "string", default: "0" },
  masters: { type: "string", multiple: true },
  "cluster-token-file": { type: "string" },
  "join-token-file": { type: "string" },
  "enroll-key-file": { type: "string" },
  tls: { type: "boolean" },
  "insecure-nodes": { type: "boolean" },
} as const satisfies ParseArgsOptionsConfig;

/** The value of a flag, empty for none, and its help. */
export type FlagHelp = readonly [value: string, help: string];

const nodeHelp = {
  data: ["DIR", "data directory; required"],
  name: ["NAME", "node name (default: one stored in DIR)"],
  "grpc-host": ["HOST", "gRPC listen address (default: 127.0.0.1)"],
  "grpc-port": ["PORT", "gRPC port; 0 selects a free one (default: 0)"],
  advertise: ["HOST:PORT", "address for the other nodes (default: the listen address)"],
  "metrics-host": ["HOST", "address of /metrics (default: 127.0.0.1)"],
  "metrics-port": ["PORT", "port of /metrics; 0 selects a free one (default: 0)"],
  masters: ["HOST:PORT,...", "gRPC addresses of masters, which name the others; required"],
  "cluster-token-file": ["FILE", "cluster token file; required without --tls"],
  "join-token-file": ["FILE", "join token file for the first start with --tls"],
  "enroll-key-file": ["FILE", "enrolment key file, to join whenever it has no certificate"],
  tls: ["", "use TLS between nodes; always on except on loopback"],
  "insecure-nodes": ["", "allow plain text between nodes beyond loopback"],
} as const satisfies Record<keyof typeof nodeFlags, FlagHelp>;

/** The text that --help prints; `extra` are the flags of the node's kind. */
export function nodeUsage(program: string, extra: Readonly<Record<string, FlagHelp>> = {}): string {
  const rows = Object.entries<FlagHelp>({ ...nodeHelp, ...extra, help: ["", "print this help"] });
  const flags = rows.map(([name, [value]]) => `--${name} ${value}`.trimEnd());
  const width = Math.max(...flags.map(({ length }) => length));
  const lines = rows.map(([, [, help]], at) => `  ${flags[at]?.padEnd(width)}  ${help}`);
  return `Usage: ${program} [flags]\n${lines.join("\n")}\n`;
}

/** The command line of a node. */
export interface ReadFlags {
  readonly flags: NodeFlags;
  /** Where its metrics are served; port 0 takes a free one. */
  readonly metrics: { readonly host: string; readonly port: number };
  readonly extra: Readonly<Record<string, string | undefined>>;
}

/**
 * Parses a node's flags; `extra` are those of its kind, all strings, returned by name. Throws an
 * AppError that names the flag and its valid values.
 */
export function readNodeFlags(args: readonly string[], extra: readonly string[] = []): ReadFlags {
  const extraFlags = Object.fromEntries(extra.map((name) => [name, { type: "string" as const }]));
  const { values } = parse(args, { ...extraFlags, ...nodeFlags });
  const text = (name: string) => {
    const value = values[name];
    return typeof value === "string" ? value : undefined;
  };
  const given = Array.isArray(values["masters"]) ? values["masters"].map(String) : [];
  const masters = masterAddresses(given);
  const grpcHost = text("grpc-host") ?? "127.0.0.1";
  const advertise = optionalAddress("advertise", text("advertise"));
  const staysHere = isAllLoopback(grpcHost, advertise ? [...masters, advertise] : masters);
  const tls = values["tls"] === true || !(staysHere || values["insecure-nodes"] === true);
  const data = required(text("data"), "--data DIR, a directory that this node keeps");
  // Tasks, trainers and the lease's guard have other working directories.
  const dataDirectory = resolve(data);
  const files = ["cluster-token-file", "join-token-file", "enroll-key-file"] as const;
  const secretPaths = [dataDirectory, ...files.map(text)];
  return {
    flags: {
      dataDirectory,
      secretPaths: secretPaths.filter((path) => path !== undefined).flatMap(hiddenPathsOf),
      name: text("name"),
      grpcHost,
      grpcPort: wholeNumber("grpc-port", text("grpc-port"), 0, MAX_PORT) ?? 0,
      advertise,
      masters,
      tls,
      isExposed: !(tls || staysHere),
      clusterToken: tls ? "" : readClusterToken(required(text("cluster-token-file"), TOKEN_HELP)),
      ...(tls ? ownProof(text("join-token-file"), text("enroll-key-file")) : {}),
    },
    metrics: {
      host: text("metrics-host") ?? "127.0.0.1",
      port: wholeNumber("metrics-port", text("metrics-port"), 0, MAX_PORT) ?? 0,
    },
    extra: Object.fromEntries(extra.map((name) => [name, text(name)])),
  };
}

function isAllLoopback(grpcHost: string, addresses: readonly string[]): boolean {
  return isLoopback(grpcHost) && addresses.every((each) => isLoopback(splitHostPort(each)[0]));
}

/** What a node without a certificate shows; a faulty enrolment key is refused at once. */
function ownProof(
  tokenFile: string | undefined,
  enrollKeyFile: string | undefined,
): Pick<NodeFlags, "joinToken" | "enrollKeyFile"> {
  if (tokenFile && enrollKeyFile) {
    const message =
      "give --join-token-file, for one node, or --enroll-key-file, for many; not both";
    throw new AppError("invalid_value", message);
  }
  if (!enrollKeyFile) return { joinToken: readJoinToken(tokenFile) };
  readEnrollKey(enrollKeyFile);
  return { joinToken: undefined, enrollKeyFile };
}

/** The file's key; undefined where there is no file. Read when it is needed: it may be replaced. */
export function readEnrollKey(path: string): string | undefined {
  const wanted = "the file that `heddle cluster enroll > FILE` wrote";
  const text = readFlagFileIfThere("--enroll-key-file", path, wanted)?.trim();
  if (!text) return undefined;
  parseJoinToken(text);
  return text;
}

/** A file, and the folder where it is one of a volume of Kubernetes, whose files are links. */
function hiddenPathsOf(path: string): string[] {
  const file = resolve(path);
  const folder = dirname(file);
  return existsSync(join(folder, "..data")) ? [file, folder] : [file];
}

/** The file may be deleted once the node has its certificate. */
function readJoinToken(path: string | undefined): string | undefined {
  const wanted = "the file that `heddle cluster join-token > FILE` wrote";
  return (path && readFlagFileIfThere("--join-token-file", path, wanted)?.trim()) || undefined;
}

/** An integer in min..max, or undefined if the flag is absent; throws an AppError. */
export function wholeNumber(
  flag: string,
  text: string | undefined,
  min: number,
  max: number,
): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  throw new AppError("invalid_value", `--${flag} takes a whole number ${min}..${max}, not ${text}`);
}

function parse(args: readonly string[], options: ParseArgsOptionsConfig) {
  try {
    return parseArgs({ args: [...args], options, strict: true });
  } catch (cause) {
    const known = Object.keys(options).map((name) => `--${name}`);
    const reason = cause instanceof Error ? cause.message : String(cause);
    const message = `${reason}. The flags are ${known.join(", ")}`;
    throw new AppError("invalid_value", message, { cause });
  }
}

function masterAddresses(given: readonly string[]): string[] {
  const masters = given.flatMap((list) => list.split(",")).filter((address) => address !== "");
  for (const master of masters) optionalAddress("masters", master);
  if (masters.length > 0) return masters;
  throw new AppError(
    "invalid_value",
    "give --masters HOST:PORT[,HOST:PORT...], the addresses of all masters",
  );
}

function optionalAddress(flag: string, text: string | undefined): string | undefined {
  if (text === undefined || isHostPort(text)) return text;
  const message = `--${flag} takes HOST:PORT with a port from 1 to ${MAX_PORT}, not ${text}`;
  throw new AppError("invalid_value", message);
}

function required(value: string | undefined, what: string): string {
  if (value !== undefined && value !== "") return value;
  throw new AppError("invalid_value", `give ${what}`);
}
