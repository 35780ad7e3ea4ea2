import { createHash, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  type ChannelCredentials,
  credentials as grpc,
  Metadata,
  ServerInterceptingCall,
  type ServerInterceptor,
  type ServerListener,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { CALLERS, type Callers } from "./callers.ts";
import { type JobCredentials, TICKET_SCHEME, type TicketVerifier } from "./job-ticket.ts";
import type { FollowedCluster } from "./node/followed-cluster.ts";
import { type NodeClaim, type NodeRole, readClaim, writeClaim } from "./pki/node-name.ts";
import { TlsIdentity, type TlsMaterial } from "./pki/tls-identity.ts";
import { toStatus } from "./status.ts";
import { TOKEN_MISMATCH } from "./token/handshake.ts";
import { TokenChannelCredentials } from "./token/token-channel.ts";

/** What a node proves itself with: its certificate where TLS is on, else the shared token. */
export interface NodeCredentials {
  readonly clusterToken: string;
  readonly tls?: TlsIdentity | undefined;
  /** Without TLS: who this node says that it is. The token does not prove it. */
  readonly node?: NodeClaim | undefined;
  /** Of a master: the id of the cluster that it speaks for. Nodes refuse calls for one that is over. */
  readonly cluster?: string | undefined;
}

/** What a server shows a task whose parts it takes: the attempt's token, and the task's certificate. */
export interface PartCredentials {
  /** Hexadecimal. */
  readonly jobToken: string;
  /** PEM, of the task itself; absent where nodes do not speak TLS. */
  readonly certificate?: string | undefined;
}

/** What a call is made with. */
export type CallerCredentials = NodeCredentials | JobCredentials | PartCredentials;

/** Credentials in the form in which they go to a thread or a process. */
export interface PlainCredentials extends Omit<NodeCredentials, "tls"> {
  readonly tls?: TlsMaterial | undefined;
}

export function toPlainCredentials({ tls, clusterToken, node }: NodeCredentials): PlainCredentials {
  return { clusterToken, node, tls: tls?.material };
}

export function fromPlainCredentials({ tls, ...rest }: PlainCredentials): NodeCredentials {
  return { ...rest, tls: tls && new TlsIdentity(tls) };
}

/** Set on each call by this process alone; what a caller sends under the name is dropped. */
const CALLER_KEY = "heddle-caller";
/** The cluster that a master speaks for. */
const CLUSTER_KEY = "heddle-cluster";

interface CallerChecks {
  /** Who has proved that it has the token, by the address at the other end of its connection. */
  readonly claimOf: (peer: string) => NodeClaim | undefined;
  readonly onRefused?: (() => void) | undefined;
  /** Of a node: which cluster it works for. */
  readonly followed?: Pick<FollowedCluster, "refusalOf"> | undefined;
  /** With them tasks of jobs may call where jobs may. */
  readonly tickets?: TicketVerifier | undefined;
  /** Whether the token comes with each call, as under TLS to a server that is no node. */
  readonly takesBearer: boolean;
}

/**
 * Refuses every call whose caller may not make it, before its first message is read, and names the
 * node that calls to the handler of each other one.
 */
export function requireCaller(own: NodeCredentials, checks: CallerChecks): ServerInterceptor {
  return ({ path }, call) => {
    const callers = CALLERS[path] ?? ["master"];
    const listener: ServerListener = {
      onReceiveMetadata: (metadata, next) => {
        metadata.remove(CALLER_KEY);
        const refusal = checks.followed?.refusalOf(String(metadata.get(CLUSTER_KEY)[0] ?? ""));
        if (refusal !== undefined) {
          call.sendStatus(toStatus(new AppError("precondition_failed", refusal)));
          return;
        }
        try {
          const caller =
            callers === "anyone" ? undefined : identify(own, checks, callers, metadata, call);
          if (caller) metadata.set(CALLER_KEY, writeClaim(caller));
          next(metadata);
        } catch (error) {
          checks.onRefused?.();
          call.sendStatus(toStatus(error));
        }
      },
    };
    return new ServerInterceptingCall(call, { start: (next) => next(listener) });
  };
}

/** The node that calls; undefined for a task of a job. Throws where the caller may not call. */
function identify(
  own: NodeCredentials,
  { claimOf, tickets, takesBearer }: CallerChecks,
  callers: Exclude<Callers, "anyone">,
  metadata: Metadata,
  call: Parameters<ServerInterceptor>[1],
): NodeClaim | undefined {
  const authorization = metadata.get("authorization")[0];
  const takesTickets = callers.includes("job");
  if (tickets?.claimsOf(authorization)) {
    if (takesTickets) return undefined;
    throw new AppError("permission_denied", "a job's ticket does not allow this call");
  }
  const roles = callers.filter((caller) => caller !== "job");
  if (own.tls) return own.tls.peerName(call.getAuthContext().sslPeerCertificate, roles);
  if (!takesBearer) {
    return checkedClaim(claimOf(call.getPeer()), takesTickets ? [...roles, "worker"] : roles);
  }
  if (isBearer(String(authorization), own.clusterToken)) return undefined;
  throw new AppError("invalid_api_key", `the call ${TOKEN_MISMATCH}`);
}

/** The comparison takes the same time whatever the token: digests of equal length are compared. */
function isBearer(authorization: string, token: string): boolean {
  return timingSafeEqual(digest(authorization), digest(`Bearer ${token}`));
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** The metadata of every call; what a connection has proved needs none. */
export function callMetadata(own: CallerCredentials): Metadata {
  const metadata = new Metadata();
  if ("ticket" in own) metadata.set("authorization", `${TICKET_SCHEME}${own.ticket}`);
  else if ("jobToken" in own && own.certificate !== undefined) {
    metadata.set("authorization", `Bearer ${own.jobToken}`);
  } else if ("clusterToken" in own && own.cluster) metadata.set(CLUSTER_KEY, own.cluster);
  return metadata;
}

/** Of connections to a node of that role, or to the task that has the certificate. */
export function channelOf(own: CallerCredentials, role: NodeRole): ChannelCredentials {
  if ("ticket" in own) {
    const material = { authority: own.authority ?? "", certificate: "", privateKey: "" };
    return isEncrypted(own)
      ? new TlsIdentity(material).channelCredentials(role)
      : grpc.createInsecure();
  }
  if (!("jobToken" in own)) {
    return own.tls?.channelCredentials(role) ?? new TokenChannelCredentials(own, role);
  }
  if (own.certificate === undefined) {
    const node = { role: "parameter-server", name: "server" } as const;
    return new TokenChannelCredentials({ clusterToken: own.jobToken, node }, role);
  }
  // Whoever has the key of this one certificate is the task, whatever it is called.
  const unnamed = { checkServerIdentity: () => undefined };
  return grpc.createSsl(Buffer.from(own.certificate), null, null, unnamed);
}

/** Whether nodes speak TLS, so that nothing may go in the clear from one machine to another. */
export function isEncrypted(own: CallerCredentials): boolean {
  if ("ticket" in own) return own.authority !== undefined;
  return "jobToken" in own ? own.certificate !== undefined : own.tls !== undefined;
}

function checkedClaim(claim: NodeClaim | undefined, roles: readonly NodeRole[]): NodeClaim {
  if (!claim) throw new AppError("invalid_api_key", `the call ${TOKEN_MISMATCH}`);
  if (roles.includes(claim.role)) return claim;
  const message = `${claim.name} is a ${claim.role}; this is for a ${roles.join(" or ")}`;
  throw new AppError("permission_denied", message);
}

/** The node that makes a call, by its certificate or, without TLS, by what it says under the token. */
export function callerOf({ metadata }: { readonly metadata: Metadata }): NodeClaim {
  const caller = readClaim(String(metadata.get(CALLER_KEY)[0] ?? ""));
  if (caller) return caller;
  throw new AppError("invalid_api_key", "the call names no node that made it");
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
