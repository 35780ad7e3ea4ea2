import { createHash, timingSafeEqual } from "node:crypto";
import type { PeerCertificate } from "node:tls";
import {
  type ChannelCredentials,
  credentials as grpc,
  Metadata,
  type ServerInterceptor,
  type ServerListener,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { type NodeClaim, type NodeRole, readClaim, writeClaim } from "@heddle/pki/node-name";
import { TlsIdentity, type TlsMaterial } from "@heddle/pki/tls-identity";
import { CALLERS, type Callers, TOKEN_HOLDERS } from "./callers.ts";
import type { FollowedCluster } from "./followed-cluster.ts";
import { type JobCredentials, TICKET_SCHEME, type TicketVerifier } from "./job-ticket.ts";
import { OpenCall, type OpenCalls } from "./open-calls.ts";
import { toStatus } from "./status.ts";
import { TOKEN_MISMATCH } from "./token/handshake.ts";
import { TokenChannelCredentials } from "./token/token-channel.ts";

/** How a node authenticates: its certificate with TLS, otherwise the shared token. */
export interface NodeCredentials {
  readonly clusterToken: string;
  readonly tls?: TlsIdentity | undefined;
  /** Without TLS: the node's claimed identity, which the token does not prove. */
  readonly node?: NodeClaim | undefined;
  /** The id of a master's cluster. Nodes refuse calls of a cluster incarnation that has ended. */
  readonly cluster?: string | undefined;
}

/**
 * How a server authenticates to a task whose parts it takes: the attempt's token, and the task's
 * certificate.
 */
export interface PartCredentials {
  /** Hexadecimal. */
  readonly jobToken: string;
  /** PEM, of the task itself; absent without TLS. */
  readonly certificate?: string | undefined;
}

/** The credentials of a call. */
export type CallerCredentials = NodeCredentials | JobCredentials | PartCredentials;

/** Credentials in a form that can be sent to a thread or a process. */
export interface PlainCredentials extends Omit<NodeCredentials, "tls"> {
  readonly tls?: TlsMaterial | undefined;
}

export function toPlainCredentials({ tls, clusterToken, node }: NodeCredentials): PlainCredentials {
  return { clusterToken, node, tls: tls?.material };
}

/** Set on each call by this process only; values from callers are dropped. */
const CALLER_KEY = "heddle-caller";
/** The cluster of a calling master. */
const CLUSTER_KEY = "heddle-cluster";

/** Whether a valid certificate of the node was revoked. */
export type IsRevoked = (node: NodeClaim, certificate: PeerCertificate) => boolean;

interface CallerChecks {
  /** The node that has proved possession of the token, by its connection's remote address. */
  readonly claimOf: (peer: string) => NodeClaim | undefined;
  readonly onRefused?: (() => void) | undefined;
  /** The cluster that a node follows. */
  readonly followed?: Pick<FollowedCluster, "refusalOf"> | undefined;
  /** With a verifier, tasks of jobs may call the methods for jobs. */
  readonly tickets?: TicketVerifier | undefined;
  readonly isRevoked?: IsRevoked | undefined;
  /** Gets the calls of nodes. */
  readonly open?: OpenCalls | undefined;
  /** Whether each call carries the token, as under TLS to a server that is no node. */
  readonly takesBearer: boolean;
}

/**
 * An interceptor that refuses unauthorized calls before their first message is read, and passes the
 * calling node to the handlers of others.
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
          if (caller) {
            metadata.set(CALLER_KEY, writeClaim(caller));
            checks.open?.add(opened, caller);
          }
          next(metadata);
        } catch (error) {
          checks.onRefused?.();
          call.sendStatus(toStatus(error));
        }
      },
    };
    const opened = new OpenCall(call, listener);
    return opened;
  };
}

/** The calling node; undefined for a task of a job. Throws if the caller is not authorized. */
function identify(
  own: NodeCredentials,
  { claimOf, tickets, takesBearer, isRevoked }: CallerChecks,
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
  if (own.tls) {
    const shown = call.getAuthContext().sslPeerCertificate;
    const node = own.tls.peerName(shown, roles);
    if (shown && isRevoked?.(node, shown)) throw revokedError(node);
    return node;
  }
  if (!takesBearer) {
    return checkedClaim(
      claimOf(call.getPeer()),
      takesTickets ? [...roles, ...TOKEN_HOLDERS] : roles,
    );
  }
  if (isBearer(String(authorization), own.clusterToken)) return undefined;
  throw new AppError("invalid_api_key", `the call ${TOKEN_MISMATCH}`);
}

/** The error of a node whose certificate was revoked. */
export function revokedError({ role, name }: NodeClaim): AppError {
  const message = `the certificates of the ${role} ${name} were revoked: let it join again with a new token`;
  return new AppError("permission_denied", message);
}

/** Constant time: compares digests of equal length. */
function isBearer(authorization: string, token: string): boolean {
  return timingSafeEqual(digest(authorization), digest(`Bearer ${token}`));
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** The metadata of every call; empty if the connection itself authenticates. */
export function callMetadata(own: CallerCredentials): Metadata {
  const metadata = new Metadata();
  if ("ticket" in own) metadata.set("authorization", `${TICKET_SCHEME}${own.ticket}`);
  else if ("jobToken" in own && own.certificate !== undefined) {
    metadata.set("authorization", `Bearer ${own.jobToken}`);
  } else if ("clusterToken" in own && own.cluster) metadata.set(CLUSTER_KEY, own.cluster);
  return metadata;
}

/** Channel credentials for a node of that role, or for the task with the certificate. */
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
  // The task is the holder of this one certificate's key, whatever its name.
  const unnamed = { checkServerIdentity: () => undefined };
  return grpc.createSsl(Buffer.from(own.certificate), null, null, unnamed);
}

/** Whether connections between nodes use TLS. */
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

/** The calling node, by its certificate or, without TLS, by its claim under the token. */
export function callerOf({ metadata }: { readonly metadata: Metadata }): NodeClaim {
  const caller = readClaim(String(metadata.get(CALLER_KEY)[0] ?? ""));
  if (caller) return caller;
  throw new AppError("invalid_api_key", "the call names no node that made it");
}

/** Reads the cluster's shared token, without surrounding white space. */
export function readClusterToken(path: string): string {
  const wanted = "a copy of the file cluster-token of a master's data directory";
  const text = readFlagFile("--cluster-token-file", path, wanted).trim();
  if (text.length >= 16) return text;
  throw new AppError(
    "invalid_value",
    `the cluster token in ${path} has ${text.length} characters: it needs at least 16`,
  );
}
