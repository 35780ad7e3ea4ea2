import { once } from "node:events";
import { createServer, connect as dialPlain, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, connect as dialTls, type TLSSocket } from "node:tls";
import { AppError, toAppError } from "@heddle/base/errors";
import type { TlsIdentity } from "@heddle/pki/tls-identity";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { checkDialler, type ProvenClaim, proveToListener } from "@heddle/rpc/token/handshake";

/** Where a member listens for the others. */
export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

/** A handshake that takes longer is given up, on either side. */
const HANDSHAKE_MS = 5_000;
/** Nodes are known by their certificates' URIs; this is the host name that gRPC asks for too. */
const SERVER_NAME = "heddle.node";

/** A connection to another master, which has shown who it is. */
export interface PeerSocket {
  readonly socket: Socket;
  readonly name: string;
  /** What the other side must sign to speak for a member, on a connection without TLS. */
  readonly session?: string | undefined;
  /** How long what it has shown holds. */
  readonly validMs: number;
}

/**
 * A server for the other masters' connections. `onPeer` gets those that have authenticated as a master,
 * by certificate or cluster token; `onRefused` gets the others with the error.
 */
export function createPeerServer(
  credentials: NodeCredentials,
  onPeer: (peer: PeerSocket) => void,
  onRefused: (socket: Socket, fault: AppError) => void,
): Server {
  const { tls } = credentials;
  if (!tls) {
    return createServer({ noDelay: true }, (socket) => {
      socket.on("error", () => undefined);
      checkDialler(socket, credentials).then(
        (claim) => {
          if (claim?.role === "master") onPeer(provenBy(socket, claim));
          else onRefused(socket, notMaster());
        },
        (error: unknown) => onRefused(socket, toAppError(error)),
      );
    });
  }
  const checks = { requestCert: true, rejectUnauthorized: true, handshakeTimeout: HANDSHAKE_MS };
  const server = createTlsServer({ ...tls.secureContext, ...checks, noDelay: true }, (socket) => {
    const fault = tls.peerFault(socket.getPeerCertificate(), ["master"]);
    if (fault) onRefused(socket, fault);
    else onPeer(shownBy(socket, tls));
  });
  const forget = tls.onUpdate(() => server.setSecureContext(tls.secureContext));
  return server.once("close", forget);
}

/** Dials a master; resolves when the other side has shown that it is one. */
export async function dialPeer(
  { host, port }: Endpoint,
  credentials: NodeCredentials,
): Promise<PeerSocket> {
  const { tls } = credentials;
  const socket = tls ? dialMaster(host, port, tls) : dialPlain({ host, port });
  socket.setNoDelay(true);
  // Readers and writers handle errors; an error in between must not end the process.
  socket.on("error", () => undefined);
  try {
    if (tls) {
      await once(socket, "secureConnect", { signal: AbortSignal.timeout(HANDSHAKE_MS) });
      return shownBy(socket as TLSSocket, tls);
    }
    const claim = await proveToListener(socket, credentials);
    if (claim.role !== "master") throw notMaster();
    return provenBy(socket, claim);
  } catch (error) {
    socket.destroy();
    if (error instanceof AppError) throw error;
    const { message } = error as Error;
    const what = `no TLS connection to the master at ${host}:${port}: ${message}`;
    throw new AppError("unavailable", what, { cause: error });
  }
}

function notMaster(): AppError {
  return new AppError(
    "permission_denied",
    "the peer that connected did not prove that it is a master",
  );
}

function provenBy(socket: Socket, { name, session }: ProvenClaim): PeerSocket {
  return { socket, name, session, validMs: Infinity };
}

function shownBy(socket: TLSSocket, tls: TlsIdentity): PeerSocket {
  const certificate = socket.getPeerCertificate();
  const { name } = tls.peerName(certificate, ["master"]);
  return { socket, name, validMs: Date.parse(certificate.valid_to) - Date.now() };
}

function dialMaster(host: string, port: number, tls: TlsIdentity): TLSSocket {
  return dialTls({
    host,
    port,
    ...tls.secureContext,
    servername: SERVER_NAME,
    checkServerIdentity: (_host, shown) => tls.peerFault(shown, ["master"]),
  });
}
