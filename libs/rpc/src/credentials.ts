import { createHash, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  Metadata,
  ServerInterceptingCall,
  type ServerInterceptor,
  type ServerListener,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { NodeRole } from "./pki/node-name.ts";
import type { TlsIdentity } from "./pki/tls-identity.ts";
import { toStatus } from "./status.ts";

/** What a node proves itself with: its certificate where TLS is on, else the shared token. */
export interface NodeCredentials {
  readonly clusterToken: string;
  readonly tls?: TlsIdentity | undefined;
}

/** Probes carry no credentials; these paths tell nothing but that the process serves. */
const publicPrefix = "/grpc.health.v1.Health/";
/** Its request carries a join token, and is refused without. */
const joinPath = "/heddle.v1.Enrollment/Join";

/** Who may call a service; every other one is for masters. */
const CALLERS: readonly (readonly [prefix: string, roles: readonly NodeRole[]])[] = [
  ["/heddle.v1.Cluster/", ["worker", "parameter-server"]],
  ["/heddle.v1.ParameterShards/", ["master", "worker", "parameter-server"]],
  ["/heddle.v1.PartSource/", ["parameter-server"]],
  ["/heddle.v1.TaskLogs/Ship", ["worker"]],
  ["/heddle.v1.TaskArtifacts/", ["master", "worker"]],
  ["/heddle.v1.Enrollment/", ["master", "worker", "parameter-server"]],
];

/** Refuses every call whose caller may not make it, before its first message is read. */
export function requireCaller(
  own: NodeCredentials,
  onRefused: () => void = () => undefined,
): ServerInterceptor {
  return own.tls ? requireRole(own.tls, onRefused) : requireToken(own.clusterToken, onRefused);
}

function requireRole(tls: TlsIdentity, onRefused: () => void): ServerInterceptor {
  return ({ path }, call) => {
    const isOpen = path === joinPath || path.startsWith(publicPrefix);
    const roles = CALLERS.find(([prefix]) => path.startsWith(prefix))?.[1] ?? ["master"];
    const listener: ServerListener = {
      onReceiveMetadata: (metadata, next) => {
        const shown = call.getAuthContext().sslPeerCertificate;
        const fault = isOpen ? undefined : tls.peerFault(shown, roles);
        if (!fault) return next(metadata);
        onRefused();
        call.sendStatus(toStatus(fault));
      },
    };
    return new ServerInterceptingCall(call, { start: (next) => next(listener) });
  };
}

/** The metadata of every call between nodes; a certificate needs none. */
export function callMetadata({ clusterToken, tls }: NodeCredentials): Metadata {
  const metadata = new Metadata();
  if (!tls) metadata.set("authorization", `Bearer ${clusterToken}`);
  return metadata;
}

/**
 * Refuses every call that lacks the cluster token, before its first message is read. The comparison
 * takes the same time whatever the token: digests of equal length are compared.
 */
function requireToken(clusterToken: string, onRefused: () => void): ServerInterceptor {
  const expected = digest(`Bearer ${clusterToken}`);
  return (method, call) => {
    const isPublic = method.path.startsWith(publicPrefix);
    const listener: ServerListener = {
      onReceiveMetadata: (metadata, next) => {
        const given = metadata.get("authorization")[0] ?? "";
        if (isPublic || timingSafeEqual(digest(String(given)), expected)) return next(metadata);
        onRefused();
        call.sendStatus(toStatus(refusal()));
      },
    };
    return new ServerInterceptingCall(call, { start: (next) => next(listener) });
  };
}

/** Reads the token that the nodes of a cluster share; surrounding white space does not count. */
export function readClusterToken(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8").trim();
  } catch (cause) {
    throw new AppError(
      "invalid_value",
      `cannot read the cluster token file ${path}: copy it from a master's data directory`,
      { cause },
    );
  }
  if (text.length >= 16) return text;
  throw new AppError(
    "invalid_value",
    `the cluster token in ${path} has ${text.length} characters: it needs at least 16`,
  );
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function refusal(): AppError {
  return new AppError(
    "invalid_api_key",
    "the call carries no valid cluster token: start the node with the token file of its masters",
  );
}
